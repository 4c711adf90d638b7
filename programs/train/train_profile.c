/* --reprofile: a profile with the times that this run took, and what a plan by it would save. */
#include "core/base/clock.h"
#include "core/base/file.h"
#include "planner/api/planner.h"
#include "planner/replay/replay.h"
#include "profiler/profiler.h"
#include "programs/train/train_impl.h"

enum {
    STEPS_KEPT = 64,
    SECONDS = 20, /* for planning, at most */
};

ckpt_code ckpt_train_open_times(ckpt_training *training, ckpt_err *err)
{
    if (training->options.reprofile == NULL) {
        return CKPT_OK;
    }
    if (training->rank_count > 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--reprofile: a profile is of the whole network on one rank, and this plan is of %d ranks",
                         training->rank_count);
    }
    return ckpt_stepped_init(&training->stepped, training->plan, STEPS_KEPT, &training->arena, err);
}

/* The first step of a process finds no memory mapped and no library loaded: it counts where there is no other. */
void ckpt_train_keep_times(ckpt_training *training, uint64_t step, bool traced, ckpt_ns whole_ns)
{
    ckpt_stepped *const stepped = &training->stepped;
    if (stepped->room == 0) {
        return;
    }
    if (step == training->first_step + 1) {
        stepped->timed = stepped->next_timed = stepped->whole = stepped->next_whole = 0;
    }
    if (traced) {
        ckpt_stepped_add(stepped, training->trace);
    }
    if (whole_ns >= 0) {
        ckpt_stepped_add_whole(stepped, whole_ns);
    }
}

static ckpt_code make_profile(ckpt_training *training, ckpt_profile **made, ckpt_err *err)
{
    ckpt_arena *const arena = &training->arena;
    if (training->profile == NULL) {
        CKPT_TRY(ckpt_profile_outline(training->lowered, training->plan, arena, made, err));
    } else {
        *made = CKPT_NEW(arena, ckpt_profile, 1);
        if (*made == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile");
        }
        **made = *training->profile;
    }
    (*made)->source = training->options.reprofile;
    (*made)->machine = training->trace->machine;
    (*made)->machine.device = training->device->api->describe(training->device);
    if (training->stepped.whole == 0) { /* all of a GPU's one or two steps were traced */
        ckpt_stepped_add_whole(&training->stepped, training->trace->time_ns);
    }
    return ckpt_profile_in_step(training->lowered, &training->stepped, 1, arena, *made, err);
}

/* Under the plan's own budget, and with what it may use: variants of other bits, another order. */
static ckpt_code plan_anew(ckpt_training *training, const ckpt_profile *profile, ckpt_err *err)
{
    ckpt_arena *const arena = &training->arena;
    const ckpt_plan *const old = training->plan;
    const ckpt_device_model *device = NULL; /* gives the times of what the profile lacks */
    const ckpt_lowered *lowered = NULL;
    const ckpt_trace *again = NULL;
    ckpt_plan *plan = NULL;
    ckpt_plan_options options;
    ckpt_plan_options_init(&options);
    options.budget_bytes = old->budget_bytes;
    options.reorder = old->reordered;
    options.deadline_ns = ckpt_clock_ns() + (ckpt_ns)SECONDS * 1000000000;
    for (int s = 0; s < old->step_count; s++) {
        options.allow_inexact = options.allow_inexact || old->step[s].inexact;
    }
    CKPT_TRY(ckpt_device_model_find(training->options.gpu ? "h200" : "cpu", arena, &device, err));
    CKPT_TRY(ckpt_network_lower(training->lowered->network, profile, device, arena, &lowered, err));
    CKPT_TRY(ckpt_plan_simulate(old, lowered->graph, arena, &again, err));
    CKPT_TRY(ckpt_plan_make(lowered->graph, "auto", &options, arena, &plan, err));
    const bool fits = plan->verdict == CKPT_FITS && plan->time_ns < again->time_ns;
    training->new_plan =
        (ckpt_train_new_plan){.made = true, .old_ns = again->time_ns, .new_ns = fits ? plan->time_ns : again->time_ns};
    return CKPT_OK;
}

ckpt_code ckpt_train_write_profile(ckpt_training *training, ckpt_err *err)
{
    ckpt_profile *profile = NULL;
    ckpt_text text;
    if (training->stepped.timed == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(make_profile(training, &profile, err));
    CKPT_TRY(ckpt_file_begin_text(training->options.reprofile, &text, err));
    ckpt_profile_write(profile, &text);
    CKPT_TRY(ckpt_file_end_text(&text, CKPT_OK, err));
    return plan_anew(training, profile, err);
}

void ckpt_train_say_new_plan(const ckpt_training *training, ckpt_text *text)
{
    const ckpt_train_new_plan *const p = &training->new_plan;
    char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT], less[CKPT_UNITS_TEXT], budget[CKPT_UNITS_TEXT];
    if (!p->made) {
        return;
    }
    ckpt_ns_show(p->old_ns, was);
    ckpt_bytes_show(training->plan->budget_bytes, budget);
    if (p->new_ns < p->old_ns) {
        ckpt_text_add(text, "planned again   in %s by %s: %s instead of %s, %s (%.1f %%) less\n", budget,
                      training->options.reprofile, ckpt_ns_show(p->new_ns, is), was,
                      ckpt_ns_show(p->old_ns - p->new_ns, less),
                      100 * (double)(p->old_ns - p->new_ns) / (double)p->old_ns);
    } else {
        ckpt_text_add(text, "planned again   in %s by %s: nothing is faster than this plan's %s\n", budget,
                      training->options.reprofile, was);
    }
}

void ckpt_train_new_plan_json(const ckpt_training *training, ckpt_json_writer *w)
{
    const ckpt_train_new_plan *const p = &training->new_plan;
    if (p->made) {
        ckpt_json_begin_object(w, "reprofile", CKPT_JSON_TIGHT);
        ckpt_json_put_text(w, "file", training->options.reprofile);
        CKPT_JSON_INTS(w, {"this_plan_ns", p->old_ns}, {"new_plan_ns", p->new_ns});
        ckpt_json_end(w);
    }
}
