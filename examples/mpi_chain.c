/* SPDX-License-Identifier: Apache-2.0
 *
 * Attends over a prompt whose keys lie on several machines, with MPI. Each rank has all query rows,
 * and the keys of its part of the prompt. The state of a block of query rows goes along the ranks.
 * The first rank begins the state, and each later rank continues the state over its own keys. While
 * a state is on its way to the next rank, the sender computes its next block of query rows. The
 * last rank has the result, with the bits of one call over all keys.
 *
 *   mpiexec -n 4 mpi_chain
 *
 * If MPI fails, or a rank ends early, MPI ends the whole job, as it does by default.
 */
#include <attnkit.h>

#include <mpi.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q_HEADS = 8, KV_HEADS = 2, DIM = 64, TOKENS = 5 * ATTNKIT_CHUNK_KEYS + 100 };
enum { BLOCK_ROWS = 128, BLOCKS = (TOKENS + BLOCK_ROWS - 1) / BLOCK_ROWS };
enum { STATE_ROWS = Q_HEADS * BLOCK_ROWS };

/* The state of a block of query rows. The struct has no padding. A rank sends the bytes of the
 * struct as they are, because all ranks have the same byte order. If the last block has fewer than
 * BLOCK_ROWS rows, its numbers are at the beginning of each array. */
struct state {
    double out[STATE_ROWS * DIM];
    double sum[STATE_ROWS];
    float max[STATE_ROWS];
};

_Static_assert(sizeof(struct state) == STATE_ROWS * (DIM * 8 + 8 + 4), "no padding");

/* The keys and values of this rank, q of all rows, and the result, which the last rank fills. */
struct part {
    int rank, size;
    int64_t first_key, keys;
    float *q, *k, *v, *out;
};

static void give_up(const char *what)
{
    fprintf(stderr, "mpi_chain: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *const memory = malloc(bytes + 1);
    if (!memory)
        give_up("no memory");
    return memory;
}

/* The tensors. Their elements are hashes in place of the numbers that a model would compute. A hash
 * depends only on the tensor and the place in the tensor. So each rank can make its own part. */
enum tensor { Q, K, V };

static float *make_rows(enum tensor tensor, int heads, int64_t first, int64_t count)
{
    float *const rows = allocate((size_t)(heads * count * DIM) * sizeof *rows), *to = rows;
    for (int head = 0; head < heads; head++)
        for (int64_t i = first; i < first + count; i++)
            for (int d = 0; d < DIM; d++) {
                uint32_t x = (uint32_t)((((int)tensor * 8 + head) * 4096 + i) * DIM + d);
                x = (x ^ x >> 15) * 0x2c1b3c6du;
                x = (x ^ x >> 12) * 0x297a2d39u;
                *to++ = (float)((x ^ x >> 15) >> 8) / (1 << 23) - 1;
            }
    return rows;
}

/* The keys of a rank begin at a multiple of ATTNKIT_CHUNK_KEYS, as states require. The last rank
 * has the remaining keys. */
static struct part make_part(int rank, int size)
{
    const int64_t share = TOKENS / ATTNKIT_CHUNK_KEYS / size * ATTNKIT_CHUNK_KEYS;
    struct part part = {.rank = rank, .size = size, .first_key = rank * share};
    part.keys = (rank == size - 1 ? TOKENS : part.first_key + share) - part.first_key;
    part.q = make_rows(Q, Q_HEADS, 0, TOKENS);
    part.k = make_rows(K, KV_HEADS, part.first_key, part.keys);
    part.v = make_rows(V, KV_HEADS, part.first_key, part.keys);
    part.out = allocate((size_t)Q_HEADS * TOKENS * DIM * sizeof *part.out);
    return part;
}

static void free_part(struct part *part)
{
    free(part->q);
    free(part->k);
    free(part->v);
    free(part->out);
}

/* Returns rows of q or of the result, from row `first` of each head on. */
static attnkit_tensor rows_from(float *all, int64_t first)
{
    return (attnkit_tensor){.data = all + first * DIM,
                            .strides = {0, TOKENS * DIM * sizeof *all, DIM * sizeof *all},
                            .layout = ATTNKIT_STRIDED};
}

static void attend(const attnkit_attention_args *args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        give_up(message);
    exec.workspace = allocate(exec.workspace_size);
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        give_up(message);
    free(exec.workspace);
}

/* Computes attention of `rows` query rows from row `first` on, over the keys of a part. `out` is
 * the result of all rows. If the part has all keys, `states` may be NULL. If the call writes a
 * state (state_out), `out` is NULL. */
static void attend_rows(const struct part *part, int64_t first, int64_t rows,
                        const attnkit_states *states, float *out)
{
    const attnkit_attention_args args = {.size = sizeof args,
                                         .flags = ATTNKIT_CAUSAL,
                                         .align = ATTNKIT_ALIGN_OFFSETS,
                                         .batch = 1,
                                         .q_heads = Q_HEADS,
                                         .kv_heads = KV_HEADS,
                                         .q_len = rows,
                                         .kv_len = part->keys,
                                         .head_dim = DIM,
                                         .q = rows_from(part->q, first),
                                         .k = {.data = part->k},
                                         .v = {.data = part->v},
                                         .out = out ? rows_from(out, first) : (attnkit_tensor){0},
                                         .q_offsets = {.data = &first},
                                         .states = states};
    attend(&args);
}

static attnkit_state pointers(struct state *state)
{
    return (attnkit_state){state->max, state->sum, state->out};
}

static void begin_receive(const struct part *part, struct state *state, MPI_Request *request)
{
    MPI_Irecv(state, sizeof *state, MPI_BYTE, part->rank - 1, 0, MPI_COMM_WORLD, request);
}

/* Computes all blocks of query rows over the keys of this rank. There is memory for two states from
 * the previous rank and for two states for the next rank. So messages travel while the rank
 * computes. */
static void run_chain(const struct part *part)
{
    struct state *const come = allocate(2 * sizeof *come), *const go = allocate(2 * sizeof *go);
    MPI_Request comes = MPI_REQUEST_NULL, goes[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const bool is_first = part->rank == 0, is_last = part->rank == part->size - 1;
    if (!is_first)
        begin_receive(part, &come[0], &comes);
    for (int i = 0; i < BLOCKS; i++) {
        attnkit_states states = {.size = sizeof states, .first_key = part->first_key};
        MPI_Wait(&comes, MPI_STATUS_IGNORE);
        MPI_Wait(&goes[i % 2], MPI_STATUS_IGNORE); /* the state of block i - 2 is sent */
        if (!is_first)
            states.state_in = pointers(&come[i % 2]);
        if (!is_first && i + 1 < BLOCKS)
            begin_receive(part, &come[(i + 1) % 2], &comes);
        if (!is_last)
            states.state_out = pointers(&go[i % 2]);
        const int64_t first = (int64_t)i * BLOCK_ROWS;
        const int64_t rows = i + 1 < BLOCKS ? BLOCK_ROWS : TOKENS - first;
        attend_rows(part, first, rows, &states, is_last ? part->out : NULL);
        if (!is_last)
            MPI_Isend(&go[i % 2], sizeof *go, MPI_BYTE, part->rank + 1, 0, MPI_COMM_WORLD,
                      &goes[i % 2]);
    }
    MPI_Waitall(2, goes, MPI_STATUSES_IGNORE);
    free(come);
    free(go);
}

/* Returns whether the result on the last rank has the bits of one call over all keys. */
static bool has_the_bits(const struct part *part)
{
    struct part whole = make_part(0, 1);
    attend_rows(&whole, 0, TOKENS, NULL, whole.out);
    const bool same =
        memcmp(part->out, whole.out, (size_t)Q_HEADS * TOKENS * DIM * sizeof(float)) == 0;
    free_part(&whole);
    return same;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct part part = make_part(rank, size);
    run_chain(&part);
    int same = rank < size - 1 || has_the_bits(&part);
    if (rank == size - 1)
        printf("%d ranks, %d blocks of %d bytes: %s bits as one call over all keys\n", size, BLOCKS,
               (int)sizeof(struct state), same ? "the same" : "OTHER");
    free_part(&part);
    MPI_Finalize();
    return same ? 0 : 1;
}
