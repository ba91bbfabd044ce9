/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps a KV cache and a state in a file. One machine has seen the first keys of a sequence, and
 * another machine continues with all later keys. The machines may have different instruction sets.
 * The result has the bits of one call over all keys, whichever machine makes this call.
 *
 *   portable_state write FILE    writes the cache of the first keys, query rows and their state
 *   portable_state go_on FILE    continues from the file, checks the result and prints its hash
 *   portable_state               does both, for every pair of instruction sets that can run here
 *
 * Memory is written to the file unchanged. This is enough, because attnkit runs only on CPUs with
 * little-endian byte order. The file begins with a header, which states the kind of file, the byte
 * order, the version of the layout, the shapes, and the version of attnkit that wrote the file.
 * docs/format.md says what another version of attnkit may do with the file.
 */
#include <attnkit.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q_HEADS = 8, KV_HEADS = 2, DIM = 64, ROWS = 3 };
enum { FIRST_KEYS = 2 * ATTNKIT_CHUNK_KEYS, KEYS = FIRST_KEYS + 200, ROOM = FIRST_KEYS + 256 };
enum {
    K_BYTES = DIM * 2,
    V_BYTES = DIM / 32 * 34
}; /* bytes of a key: K is f16 in a tile, V is a row of Q8_0 */

/* K [KV_HEADS][ROOM / 16][DIM][16] in tiles, V [KV_HEADS][ROOM][DIM] in rows. */
struct cache {
    unsigned char k[KV_HEADS * ROOM * K_BYTES], v[KV_HEADS * ROOM * V_BYTES];
};

/* Query rows, and their state over the first keys. */
struct queries {
    float q[Q_HEADS * ROWS * DIM];
    float max[Q_HEADS * ROWS];
    double sum[Q_HEADS * ROWS], out[Q_HEADS * ROWS * DIM];
};

static void give_up(const char *what)
{
    fprintf(stderr, "portable_state: %s\n", what);
    exit(1);
}

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK)
        give_up(message);
}

/* ----------------------------------------------------------------------------------- the file */

#define MAGIC "attnkv\r\n" /* "\r\n" detects a transfer that has changed line ends */

/* The header, in the byte order of the machine that wrote it, without padding. A change of the
 * layout gets a new version. */
struct header {
    char magic[8];
    uint32_t byte_order; /* ORDER_MARK */
    uint32_t version;    /* VERSION */
    char library[16];    /* attnkit_version() */
    int32_t q_heads, kv_heads, dim, rows;
    int64_t keys;
    int32_t k_type, k_layout, v_type; /* as in attnkit_tensor */
    int32_t state_bytes;              /* bytes of a number in sum and out */
};

enum { ORDER_MARK = 0x01020304, VERSION = 1 };

_Static_assert(sizeof(struct header) == 72, "no padding");

static struct header make_header(void)
{
    struct header h = {.magic = MAGIC,
                       .byte_order = ORDER_MARK,
                       .version = VERSION,
                       .q_heads = Q_HEADS,
                       .kv_heads = KV_HEADS,
                       .dim = DIM,
                       .rows = ROWS,
                       .keys = FIRST_KEYS,
                       .k_type = ATTNKIT_F16,
                       .k_layout = ATTNKIT_TILED,
                       .v_type = ATTNKIT_Q8_0,
                       .state_bytes = sizeof(double)};
    snprintf(h.library, sizeof h.library, "%s", attnkit_version());
    return h;
}

/* Returns NULL, or a text that says why the file is refused. This program has one shape. A real
 * program would take the shape from the header, within bounds. Files that have a cache and no state
 * need not be refused if they are from an older version of attnkit. */
static const char *check_header(const struct header *h)
{
    const struct header expected = make_header();
    if (memcmp(h->magic, expected.magic, sizeof h->magic) != 0)
        return "this is not a file of portable_state";
    if (h->byte_order != ORDER_MARK)
        return "the file is from a machine with the other byte order";
    if (h->version != VERSION)
        return "the file is of a version that is not known";
    if (memcmp(h->library, expected.library, sizeof h->library) != 0)
        return "the file is from another version of attnkit";
    if (memcmp(h, &expected, sizeof *h) != 0)
        return "the shapes or types in the file differ from those of this program";
    return NULL;
}

static void put(FILE *file, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, file) != bytes)
        give_up("cannot write the file");
}

static void get(FILE *file, void *data, size_t bytes)
{
    if (fread(data, 1, bytes, file) != bytes)
        give_up("the file is cut off, or cannot be read");
}

/* Writes the header, the cache and the queries. Of each head of the cache, writes only the keys in
 * use, because the cache of the other machine may have another capacity. */
static void save(FILE *file, const struct cache *cache, const struct queries *queries)
{
    const struct header header = make_header();
    put(file, &header, sizeof header);
    for (int head = 0; head < KV_HEADS; head++) {
        put(file, cache->k + head * ROOM * K_BYTES, FIRST_KEYS * K_BYTES);
        put(file, cache->v + head * ROOM * V_BYTES, FIRST_KEYS * V_BYTES);
    }
    put(file, queries->q, sizeof queries->q);
    put(file, queries->max, sizeof queries->max);
    put(file, queries->sum, sizeof queries->sum);
    put(file, queries->out, sizeof queries->out);
}

static void load(FILE *file, struct cache *cache, struct queries *queries)
{
    struct header header;
    get(file, &header, sizeof header);
    const char *const wrong = check_header(&header);
    if (wrong)
        give_up(wrong);
    for (int head = 0; head < KV_HEADS; head++) {
        get(file, cache->k + head * ROOM * K_BYTES, FIRST_KEYS * K_BYTES);
        get(file, cache->v + head * ROOM * V_BYTES, FIRST_KEYS * V_BYTES);
    }
    get(file, queries->q, sizeof queries->q);
    get(file, queries->max, sizeof queries->max);
    get(file, queries->sum, sizeof queries->sum);
    get(file, queries->out, sizeof queries->out);
    if (fgetc(file) != EOF)
        give_up("the file is longer than it should be");
}

/* ---------------------------------------------------------------------------------- the calls */

static void append(const attnkit_append_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    expect_ok(attnkit_append_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size + 1);
    expect_ok(attnkit_append(args, &exec, message), message);
    free(exec.workspace);
}

static void attend(const attnkit_attention_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    expect_ok(attnkit_attention_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size + 1);
    expect_ok(attnkit_attention(args, &exec, message), message);
    free(exec.workspace);
}

/* Returns K of a cache from key `key` on. This key is the first key of a tile. v_from returns V. */
static attnkit_tensor k_from(const struct cache *cache, int64_t key)
{
    return (attnkit_tensor){.data = cache->k + key * K_BYTES,
                            .strides = {0, ROOM * K_BYTES, ATTNKIT_TILE_KEYS * K_BYTES},
                            .type = ATTNKIT_F16,
                            .layout = ATTNKIT_TILED | ATTNKIT_STRIDED};
}

static attnkit_tensor v_from(const struct cache *cache, int64_t key)
{
    return (attnkit_tensor){.data = cache->v + key * V_BYTES,
                            .strides = {0, ROOM * V_BYTES, V_BYTES},
                            .type = ATTNKIT_Q8_0,
                            .layout = ATTNKIT_STRIDED};
}

/* Attends with the query rows of the last ROWS positions over the keys first .. end - 1. Begins
 * from states->state_in if this state is given. Writes states->state_out if this state is given,
 * else the result. */
static void attend_part(const struct cache *cache, const float *q, int64_t first, int64_t end,
                        const attnkit_states *states, float *out, const char *isa)
{
    const int64_t offset = KEYS - ROWS;
    const attnkit_attention_args args = {.size = sizeof args,
                                         .flags = ATTNKIT_CAUSAL,
                                         .align = ATTNKIT_ALIGN_OFFSETS,
                                         .batch = 1,
                                         .q_heads = Q_HEADS,
                                         .kv_heads = KV_HEADS,
                                         .q_len = ROWS,
                                         .kv_len = end - first,
                                         .head_dim = DIM,
                                         .q = {.data = q},
                                         .k = k_from(cache, first),
                                         .v = v_from(cache, first),
                                         .out = {.data = out},
                                         .q_offsets = {.data = &offset},
                                         .states = states};
    attend(&args, isa);
}

/* The tensors. Their elements are hashes in place of the numbers that a model would compute. A hash
 * depends only on the tensor and the place in the tensor. */
enum what { Q, K, V };

static void make_rows(enum what what, int64_t first, int64_t count, float *to)
{
    for (int head = 0; head < (what == Q ? Q_HEADS : KV_HEADS); head++)
        for (int64_t i = first; i < first + count; i++)
            for (int d = 0; d < DIM; d++) {
                uint32_t x = (uint32_t)((((int)what * 8 + head) * 2048 + i) * DIM + d);
                x = (x ^ x >> 15) * 0x2c1b3c6du;
                x = (x ^ x >> 12) * 0x297a2d39u;
                *to++ = (float)((x ^ x >> 15) >> 8) / (1 << 23) - 1;
            }
}

/* Appends keys and values first .. end - 1 to the cache, in the types of the cache. */
static void append_keys(struct cache *cache, int64_t first, int64_t end, const char *isa)
{
    float *const rows = malloc((size_t)(KV_HEADS * (end - first) * DIM) * sizeof *rows);
    if (!rows)
        give_up("no memory");
    attnkit_append_args args = {.size = sizeof args,
                                .batch = 1,
                                .heads = KV_HEADS,
                                .len = end - first,
                                .dim = DIM,
                                .capacity = ROOM,
                                .src = {.data = rows},
                                .dst = k_from(cache, 0),
                                .starts = {.data = &first}};
    make_rows(K, first, end - first, rows);
    append(&args, isa);
    make_rows(V, first, end - first, rows);
    args.dst = v_from(cache, 0);
    append(&args, isa);
    free(rows);
}

/* --------------------------------------------------------------------------- the two machines */

/* Acts as the first machine: computes the state of the queries over the first keys, and writes the
 * file. */
static void write_file(FILE *file, const char *isa)
{
    static struct cache cache;
    static struct queries queries;
    const attnkit_states states = {.size = sizeof states,
                                   .state_out = {queries.max, queries.sum, queries.out}};
    append_keys(&cache, 0, FIRST_KEYS, isa);
    make_rows(Q, KEYS - ROWS, ROWS, queries.q);
    attend_part(&cache, queries.q, 0, FIRST_KEYS, &states, NULL, isa);
    save(file, &cache, &queries);
}

/* Computes the result of one call over all keys, with a cache that this machine makes itself. */
static void attend_at_once(float *out, const char *isa)
{
    static struct cache cache;
    static float q[Q_HEADS * ROWS * DIM];
    append_keys(&cache, 0, KEYS, isa);
    make_rows(Q, KEYS - ROWS, ROWS, q);
    attend_part(&cache, q, 0, KEYS, NULL, out, isa);
}

/* Acts as the second machine: appends its own keys to the keys of the file, then computes the
 * result twice, from the state and from the whole cache. Sets *hash to the hash of the result from
 * the state. Returns whether both results have the bits of attend_at_once. */
static bool go_on(FILE *file, const char *isa, uint64_t *hash)
{
    static struct cache cache;
    static struct queries queries;
    static float from_state[Q_HEADS * ROWS * DIM], from_cache[Q_HEADS * ROWS * DIM];
    static float at_once[Q_HEADS * ROWS * DIM];
    const attnkit_states states = {.size = sizeof states,
                                   .first_key = FIRST_KEYS,
                                   .state_in = {queries.max, queries.sum, queries.out}};
    load(file, &cache, &queries);
    append_keys(&cache, FIRST_KEYS, KEYS, isa);
    attend_part(&cache, queries.q, FIRST_KEYS, KEYS, &states, from_state, isa);
    attend_part(&cache, queries.q, 0, KEYS, NULL, from_cache, isa);
    attend_at_once(at_once, isa);
    *hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof from_state; i++)
        *hash = (*hash ^ ((const unsigned char *)from_state)[i]) * UINT64_C(0x100000001b3);
    return memcmp(from_state, at_once, sizeof at_once) == 0 &&
           memcmp(from_cache, at_once, sizeof at_once) == 0;
}

static void report(uint64_t hash, bool same)
{
    printf("result %016" PRIx64 ": %s bits as one call over all keys\n", hash,
           same ? "the same" : "OTHER");
}

/* Returns the name of instruction set i, or NULL if the instruction set cannot run here. */
static const char *isa_at(int32_t i)
{
    attnkit_isa_info info = {.size = sizeof info};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_isa_get(i, &info, message), message);
    return info.can_run ? info.name : NULL;
}

static bool try_all_pairs(void)
{
    uint64_t hash = 0, first = 0;
    bool same = true;
    int pairs = 0;
    for (int32_t i = 0; i < attnkit_isa_count(); i++)
        for (int32_t j = 0; j < attnkit_isa_count(); j++) {
            if (!isa_at(i) || !isa_at(j))
                continue;
            FILE *const file = tmpfile();
            if (!file)
                give_up("no temporary file");
            write_file(file, isa_at(i));
            rewind(file);
            same = go_on(file, isa_at(j), &hash) && same;
            first = pairs++ ? first : hash;
            same = same && hash == first;
            fclose(file);
        }
    report(hash, same);
    return same;
}

int main(int argc, char **argv)
{
    const bool writes = argc == 3 && strcmp(argv[1], "write") == 0;
    if (argc == 1)
        return try_all_pairs() ? 0 : 1;
    if (argc != 3 || (!writes && strcmp(argv[1], "go_on") != 0))
        give_up("usage: portable_state [write FILE | go_on FILE]");
    FILE *const file = fopen(argv[2], writes ? "wb" : "rb");
    if (!file)
        give_up("cannot open the file");
    uint64_t hash;
    bool same = true;
    if (writes)
        write_file(file, NULL);
    else
        same = go_on(file, NULL, &hash);
    if (fclose(file) != 0)
        give_up("cannot close the file");
    if (!writes)
        report(hash, same);
    return same ? 0 : 1;
}
