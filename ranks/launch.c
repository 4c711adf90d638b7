/* The rank of this process and the number of ranks, from the environment. */
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_impl.h"

/* A whole number from `lowest` to a million in variable `name`; `absent` where it is not set or empty. */
static ckpt_code read_number(const char *name, int lowest, int absent, int *number, ckpt_err *err)
{
    const char *const text = getenv(name);
    if (text == NULL || text[0] == '\0') {
        *number = absent;
        return CKPT_OK;
    }
    return text[0] >= '0' && text[0] <= '9' && ckpt_int_parse(text, lowest, 1000000, number)
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "environment: found %s=%.40s, wanted a number from %d to 1000000", name,
                           text, lowest);
}

/* The variables of mpirun: Open MPI's, and those of Hydra (MPICH, Intel MPI). */
static ckpt_code read_mpirun(int *rank, int *count, ckpt_err *err)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
    *count = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && *count == 0; i++) {
        CKPT_TRY(read_number(names[i][1], 1, 0, count, err));
        CKPT_TRY(read_number(names[i][0], 0, 0, rank, err));
    }
    return CKPT_OK;
}

/* The rank among those of this host and their number, from Open MPI, Hydra or a launcher; -1 and 0: not told. */
static ckpt_code read_local(int *local, int *seats, ckpt_err *err)
{
    static const char *const names[][2] = {{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                           {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}};
    *local = -1;
    *seats = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CKPT_TRY(read_number(names[i][0], 0, *local, local, err));
        CKPT_TRY(read_number(names[i][1], 1, *seats, seats, err));
    }
    return CKPT_OK;
}

static ckpt_code read_launcher(ckpt_launch *launch, int rank, int count, ckpt_err *err)
{
    const char *const address = getenv("MASTER_ADDR"), *const port = getenv("MASTER_PORT");
    if (rank < 0 || rank >= count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         rank < 0
                             ? "environment: found WORLD_SIZE=%d without RANK, wanted both"
                             : "environment: found WORLD_SIZE=%d and RANK=%d, wanted a rank below the world's size",
                         count, rank);
    }
    if (count > 1 && (address == NULL || address[0] == '\0' || port == NULL || port[0] == '\0')) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "environment: found WORLD_SIZE=%d without %s, wanted where rank 0 is (or start with mpirun)",
                         count, address == NULL || address[0] == '\0' ? "MASTER_ADDR" : "MASTER_PORT");
    }
    launch->rank = rank;
    launch->count = count;
    launch->address = address;
    launch->port = port;
    return CKPT_OK;
}

static ckpt_code read_world(ckpt_launch *launch, ckpt_err *err)
{
    int rank = 0, count = 0, world_rank = -1, world = 0;
    CKPT_TRY(read_mpirun(&rank, &count, err));
    CKPT_TRY(read_number("WORLD_SIZE", 1, 0, &world, err));
    CKPT_TRY(read_number("RANK", 0, -1, &world_rank, err));
    if (count > 0) {
        if (world > 0 && world != count) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "environment: found WORLD_SIZE=%d under an mpirun of %d, wanted one",
                             world, count);
        }
        launch->rank = rank;
        launch->count = count;
        launch->mpi = true;
        return CKPT_OK;
    }
    /* RANK alone does not count: other programs use that name too. */
    return world > 0 ? read_launcher(launch, world_rank, world, err) : CKPT_OK;
}

ckpt_code ckpt_launch_read(ckpt_launch *launch, ckpt_err *err)
{
    int local = -1, seats = 0;
    *launch = (ckpt_launch){.count = 1};
    CKPT_TRY(read_number("CKPT_RANKS_WAIT", 1, 60, &launch->seconds, err));
    CKPT_TRY(read_number("CKPT_RANKS_PROGRESS", 0, 1, &launch->moves, err));
    CKPT_TRY(read_local(&local, &seats, err));
    CKPT_TRY(read_world(launch, err));
    launch->local = local < 0 ? 0 : local;
    launch->seat = local < 0 ? launch->rank : local;
    launch->seats = local < 0 || seats == 0 ? launch->count : seats;
    return CKPT_OK;
}

void ckpt_ranks_seat(int *seat, int *seats)
{
    ckpt_launch launch;
    const bool told = ckpt_launch_read(&launch, NULL) == CKPT_OK && launch.count > 1;
    *seat = told ? launch.seat : 0;
    *seats = told ? launch.seats : 1;
}

ckpt_code ckpt_ranks_started(int *count, ckpt_err *err)
{
    ckpt_launch launch;
    CKPT_TRY(ckpt_launch_read(&launch, err));
    *count = launch.count;
    return CKPT_OK;
}
