/* Eight threads plan at once, the same graphs and graphs of their own, and each gets what one thread alone got.
 * Arguments: model files. Run under ThreadSanitizer too (preset tsan). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/libckpt/api_graph.h"

enum { THREADS = 8, GRAPHS_MAX = 8, LENGTH_MAX = 1 << 20 };

static const char *const budgets[] = {NULL, "80%", "60%", "1kB"};
enum { BUDGETS = sizeof budgets / sizeof *budgets, QUESTIONS = BUDGETS + 2, LAYERS = 5 };

typedef struct subject {
    const char *name;
    char *text;
    size_t length;
    ckpt_graph *graph; /* shared by all threads */
    char *answer[QUESTIONS];
} subject;

static subject subjects[GRAPHS_MAX];
static int subject_count;

static void fail(const char *what, const char *message)
{
    fprintf(stderr, "FAILED: %s: %s\n", what, message);
    exit(1);
}

/* But for the seconds it took. */
static char *timeless(char *json)
{
    static const char key[] = "\"seconds\": ";
    char *const at = json != NULL ? strstr(json, key) : NULL;
    if (at != NULL) {
        char *const end = at + strlen(key) + strcspn(at + strlen(key), " }");
        memmove(at, end, strlen(end) + 1);
    }
    return json;
}

/* The plan at a budget; or the sweep; or a graph of one's own, which nobody shares. */
static char *ask(const subject *s, int question)
{
    ckpt_error error = {0};
    ckpt_options *const options = ckpt_options_create();
    ckpt_plan *plan = NULL;
    ckpt_sweep *sweep = NULL;
    ckpt_graph *own = NULL;
    char *json = NULL;
    const char *const budget = question < BUDGETS ? budgets[question] : "70%";
    if (options == NULL || (budget != NULL && ckpt_options_set(options, "budget", budget, &error) != CKPT_SUCCESS)) {
        fail(s->name, error.message);
    }
    ckpt_options_set_effort(options, 0);
    if (question == BUDGETS) {
        if (ckpt_sweep_create(s->graph, options, 3, &sweep, &error) == CKPT_SUCCESS) {
            json = ckpt_sweep_json(sweep, NULL, &error);
        }
    } else {
        const ckpt_graph *graph = s->graph;
        if (question > BUDGETS && s->text != NULL) {
            if (ckpt_graph_from_json("broken", s->text, s->length / 2, NULL, &own, &error) != CKPT_ERROR_INPUT ||
                ckpt_graph_from_json(s->name, s->text, s->length, NULL, &own, &error) != CKPT_SUCCESS) {
                fail(s->name, error.message);
            }
            graph = own;
        }
        if (ckpt_plan_create(graph, options, &plan, &error) == CKPT_SUCCESS) {
            json = ckpt_plan_json(plan, NULL, &error);
        }
    }
    if (json == NULL) {
        fail(s->name, error.message);
    }
    ckpt_sweep_destroy(sweep);
    ckpt_plan_destroy(plan);
    ckpt_graph_destroy(own);
    ckpt_options_destroy(options);
    return timeless(json);
}

static void *run(void *argument)
{
    const int first = *(const int *)argument;
    const int count = subject_count * QUESTIONS;
    for (int i = 0; i < count; i++) {
        const int at = (first * 5 + i) % count; /* each begins elsewhere */
        const subject *const s = &subjects[at / QUESTIONS];
        char *const answer = ask(s, at % QUESTIONS);
        if (strcmp(answer, s->answer[at % QUESTIONS]) != 0) {
            fail(s->name, "another answer than one thread alone gets");
        }
        ckpt_json_free(answer);
    }
    return NULL;
}

static void read_subject(subject *s, const char *path)
{
    ckpt_error error;
    FILE *const file = fopen(path, "rb");
    s->name = path;
    s->text = malloc(LENGTH_MAX);
    if (file == NULL || s->text == NULL) {
        fail(path, "cannot be read");
    }
    s->length = fread(s->text, 1, LENGTH_MAX, file);
    fclose(file);
    if (ckpt_graph_from_json(path, s->text, s->length, NULL, &s->graph, &error) != CKPT_SUCCESS) {
        fail(path, error.message);
    }
}

static void build_subject(subject *s)
{
    ckpt_error error;
    s->name = "chain";
    s->graph = ckpt_graph_create(s->name);
    build_chain(s->graph, LAYERS);
    if (ckpt_graph_finish(s->graph, &error) != CKPT_SUCCESS) {
        fail(s->name, error.message);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    int number[THREADS];
    for (int i = 0; i < argc && subject_count < GRAPHS_MAX; i++) {
        if (i == 0) {
            build_subject(&subjects[subject_count]);
        } else {
            read_subject(&subjects[subject_count], argv[i]);
        }
        for (int q = 0; q < QUESTIONS; q++) {
            subjects[subject_count].answer[q] = ask(&subjects[subject_count], q);
        }
        subject_count++;
    }
    for (int t = 0; t < THREADS; t++) {
        number[t] = t;
        if (pthread_create(&thread[t], NULL, run, &number[t]) != 0) {
            fail("thread", "cannot be created");
        }
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
    }
    for (int i = 0; i < subject_count; i++) {
        for (int q = 0; q < QUESTIONS; q++) {
            ckpt_json_free(subjects[i].answer[q]);
        }
        ckpt_graph_destroy(subjects[i].graph);
        free(subjects[i].text);
    }
    printf("%d threads, %d answers each: as one thread alone\n", THREADS, subject_count * QUESTIONS);
    return 0;
}
