/* SPDX-License-Identifier: Apache-2.0
 *
 * A language model with a decoder of two layers, in the manner of Llama, made of attnkit's calls:
 * token embedding, attention layers with grouped query heads, RoPE and a KV cache, feed-forward,
 * logits. The prompt is run as a whole. Then the most likely token is appended, again and again.
 *
 * You may copy from this program. attnkit has no norm and no activation, so the program computes
 * both itself. The weights are random. main makes and checks the model twice: first with packed
 * matrices and cache in binary32, then with packed matrices and cache in Q8_0. The cache of Q8_0
 * lies in pages, with K in tiles. The logits must have the same bits whether the tokens are run one
 * by one, in parts or all at once. The last logits must depend on the first token.
 */
#include <attnkit.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 100, D_MODEL = 128, D_FF = 192, LAYERS = 2 };
enum { Q_HEADS = 4, KV_HEADS = 2, HEAD_DIM = D_MODEL / Q_HEADS };
enum { CONTEXT = 64, PAGE = 16, PAGES = CONTEXT / PAGE }; /* CONTEXT: tokens in a full cache */
enum { PROMPT = 37, TOKENS = 47 }; /* PROMPT: tokens of the prompt; TOKENS: of prompt and answer */

/* ----------------------------------------------------------------------- errors and memory */

/* Ends the program if a call of attnkit has failed. A call that can fail returns a status, and
 * writes a message if there is an error. */
static void expect_ok(attnkit_status status, const char *message)
{
    if (status == ATTNKIT_OK)
        return;
    fprintf(stderr, "%s: %s\n", attnkit_status_string(status), message);
    exit(1);
}

/* Allocates zeroed memory with the alignment that packed matrices need. */
static void *allocate(size_t bytes)
{
    const size_t whole = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    if (!memory)
        exit(1);
    return memset(memory, 0, whole);
}

static float *allocate_floats(int64_t count)
{
    return allocate((size_t)count * sizeof(float));
}

/* Makes the workspace of exec at least `bytes` bytes large. attnkit allocates nothing: a call gets
 * a workspace. A function such as attnkit_linear_workspace says how many bytes the call needs.
 * Calls may use the same workspace one after the other. */
static void reserve(attnkit_exec *exec, size_t bytes)
{
    if (bytes <= exec->workspace_size)
        return;
    free(exec->workspace);
    exec->workspace = allocate(bytes);
    exec->workspace_size = bytes;
}

/* --------------------------------------------------------------------------------- weights */

struct matrix {
    int64_t out_dim, in_dim;
    attnkit_type type;
    void *packed;
};

struct layer {
    float attention_norm[D_MODEL], feed_forward_norm[D_MODEL];
    void *attention; /* packed matrices of the projections and the output projection */
    size_t attention_size;
    struct matrix gate, up, down;
};

struct model {
    float *embedding; /* [VOCAB][D_MODEL] */
    struct layer layers[LAYERS];
    float norm[D_MODEL];
    struct matrix head;
};

/* Draws `count` numbers from -most to most. The caller frees them. */
static float *random_floats(int64_t count, float most, uint64_t *seed)
{
    float *numbers = allocate_floats(count);
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u; /* the generator of MMIX */
        numbers[i] = most * ((float)(*seed >> 40) / (1 << 23) - 1);
    }
    return numbers;
}

/* Draws a matrix [out_dim][in_dim], scaled so that outputs are about as large as inputs. */
static float *random_weights(int64_t out_dim, int64_t in_dim, uint64_t *seed)
{
    return random_floats(out_dim * in_dim, sqrtf(3.0f / (float)in_dim), seed);
}

static void random_norm(float norm[D_MODEL], uint64_t *seed)
{
    float *numbers = random_floats(D_MODEL, 0.5f, seed);
    for (int i = 0; i < D_MODEL; i++)
        norm[i] = 1 + numbers[i];
    free(numbers);
}

/* Packs a binary32 matrix in the type `type`, and frees the original. */
static struct matrix pack(int64_t out_dim, int64_t in_dim, float *weights, attnkit_type type)
{
    struct matrix m = {.out_dim = out_dim, .in_dim = in_dim, .type = type};
    attnkit_pack_args args = {.size = sizeof args,
                              .out_dim = out_dim,
                              .in_dim = in_dim,
                              .w = {.data = weights, .type = ATTNKIT_F32},
                              .packed_type = type};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_packed_size(&args, &args.packed_size, message), message);
    args.packed = m.packed = allocate(args.packed_size);
    expect_ok(attnkit_pack(&args, NULL, message), message);
    free(weights);
    return m;
}

/* Draws and packs the matrices of an attention layer, for q, k, v and the output. As in Llama,
 * there are no biases. */
static void pack_attention(struct layer *layer, attnkit_type type, uint64_t *seed)
{
    float *w_qkv = random_weights((Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, D_MODEL, seed);
    float *w_o = random_weights(D_MODEL, Q_HEADS * HEAD_DIM, seed);
    const attnkit_layer_weights weights = {.size = sizeof weights,
                                           .d_model = D_MODEL,
                                           .q_heads = Q_HEADS,
                                           .kv_heads = KV_HEADS,
                                           .w_qkv = w_qkv,
                                           .w_o = w_o,
                                           .w_type = ATTNKIT_F32,
                                           .packed_type = type};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_layer_packed_size(&weights, &layer->attention_size, message), message);
    layer->attention = allocate(layer->attention_size);
    expect_ok(attnkit_layer_pack(&weights, layer->attention, layer->attention_size, NULL, message),
              message);
    free(w_qkv);
    free(w_o);
}

static void make_model(struct model *m, attnkit_type type)
{
    uint64_t seed = 1;
    m->embedding = random_floats(VOCAB * D_MODEL, 1.0f, &seed);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = &m->layers[i];
        random_norm(layer->attention_norm, &seed);
        random_norm(layer->feed_forward_norm, &seed);
        pack_attention(layer, type, &seed);
        layer->gate = pack(D_FF, D_MODEL, random_weights(D_FF, D_MODEL, &seed), type);
        layer->up = pack(D_FF, D_MODEL, random_weights(D_FF, D_MODEL, &seed), type);
        layer->down = pack(D_MODEL, D_FF, random_weights(D_MODEL, D_FF, &seed), type);
    }
    random_norm(m->norm, &seed);
    m->head = pack(VOCAB, D_MODEL, random_weights(VOCAB, D_MODEL, &seed), type);
}

static void free_model(struct model *m)
{
    free(m->embedding);
    for (int i = 0; i < LAYERS; i++) {
        free(m->layers[i].attention);
        free(m->layers[i].gate.packed);
        free(m->layers[i].up.packed);
        free(m->layers[i].down.packed);
    }
    free(m->head.packed);
}

/* --------------------------------------------------------------------------------- the cache */

/* A sequence and its caches. attention[i] has the arguments for the attention of layer i. The
 * tensors k and v in attention[i] point to the cache of this layer. */
struct sequence {
    attnkit_attention_args attention[LAYERS];
    void *k[LAYERS], *v[LAYERS];
    attnkit_kv_storage storage; /* for a cache in pages */
    attnkit_pages pages;
    int32_t block_table[PAGES];
    int64_t cached; /* tokens in the cache */
};

static void make_caches(struct sequence *s, attnkit_attention_args description, size_t bytes)
{
    for (int i = 0; i < LAYERS; i++) {
        s->attention[i] = description;
        s->attention[i].k.data = s->k[i] = allocate(bytes);
        s->attention[i].v.data = s->v[i] = allocate(bytes);
    }
}

/* Begins a sequence with K and V of binary32, each [KV_HEADS][CONTEXT][HEAD_DIM]. Each row sees the
 * keys up to its own key. The last row's key is the last key in the cache. */
static void begin_dense(struct sequence *s)
{
    const attnkit_attention_args description = {.size = sizeof description,
                                                .flags = ATTNKIT_CAUSAL,
                                                .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                                                .kv_len = CONTEXT};
    *s = (struct sequence){.cached = 0};
    make_caches(s, description, sizeof(float) * KV_HEADS * CONTEXT * HEAD_DIM);
}

/* Begins a sequence with a cache of Q8_0 in pages of 16 keys, K in tiles. This cache takes about a
 * quarter of the memory of a cache of binary32, and its pages may be any free pages. The program
 * chooses which page holds which keys. Here all layers have the same block table. */
static void begin_paged(struct sequence *s)
{
    const attnkit_attention_args description = {
        .size = sizeof description,
        .flags = ATTNKIT_CAUSAL,
        .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .kv_len = CONTEXT,
        .k = {.type = ATTNKIT_Q8_0, .layout = ATTNKIT_TILED},
        .v = {.type = ATTNKIT_Q8_0},
        .storage = &s->storage,
    };
    *s = (struct sequence){.cached = 0};
    for (int i = 0; i < PAGES; i++)
        s->block_table[i] = PAGES - 1 - i;
    s->pages = (attnkit_pages){
        .size = sizeof s->pages, .block_table = s->block_table, .page_size = PAGE, .pages = PAGES};
    s->storage = (attnkit_kv_storage){.size = sizeof s->storage, .pages = &s->pages};
    make_caches(s, description, (size_t)PAGES * KV_HEADS * PAGE * HEAD_DIM / 32 * 34);
}

static void end(struct sequence *s)
{
    for (int i = 0; i < LAYERS; i++) {
        free(s->k[i]);
        free(s->v[i]);
    }
}

/* --------------------------------------------------------------------------------- the model */

/* Computes y = x / rms(x) * norm for each row, with Llama's eps. */
static void rms_norm(int64_t rows, const float *x, const float norm[D_MODEL], float *y)
{
    for (int64_t i = 0; i < rows; i++, x += D_MODEL, y += D_MODEL) {
        float sum = 0;
        for (int d = 0; d < D_MODEL; d++)
            sum += x[d] * x[d];
        const float factor = 1 / sqrtf(sum / D_MODEL + 1e-5f);
        for (int d = 0; d < D_MODEL; d++)
            y[d] = x[d] * factor * norm[d];
    }
}

/* Computes gate = silu(gate) * up. */
static void silu_times(int64_t count, float *gate, const float *up)
{
    for (int64_t i = 0; i < count; i++)
        gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static void add(int64_t count, float *x, const float *y)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += y[i];
}

static void embed(const struct model *m, int64_t count, const int32_t *tokens, float *x)
{
    const attnkit_embed_args args = {.size = sizeof args,
                                     .count = count,
                                     .vocab = VOCAB,
                                     .dim = D_MODEL,
                                     .ids = {.data = tokens, .type = ATTNKIT_INT32},
                                     .table = {.data = m->embedding},
                                     .out = {.data = x}};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_embed(&args, NULL, message), message);
}

static void linear(const struct matrix *m, int64_t rows, const float *x, float *y,
                   attnkit_exec *exec)
{
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = rows,
                                      .in_dim = m->in_dim,
                                      .out_dim = m->out_dim,
                                      .x = {.data = x},
                                      .w = {.data = m->packed, .type = m->type},
                                      .y = {.data = y}};
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    expect_ok(attnkit_linear_workspace(&args, exec, &bytes, message), message);
    reserve(exec, bytes);
    expect_ok(attnkit_linear(&args, exec, message), message);
}

/* Self-attention of new tokens: one call does the projections, rotates q and k, appends k and v to
 * the cache, attends and does the output projection. Positions continue from the number of tokens
 * in the cache. */
static void attend(const struct layer *layer, const attnkit_attention_args *attention,
                   const int64_t *cached, int64_t rows, const float *x, float *y,
                   attnkit_exec *exec)
{
    const attnkit_rotation rotation = {.size = sizeof rotation, .kind = ATTNKIT_ROPE_HALF};
    const attnkit_layer_args args = {.size = sizeof args,
                                     .packed = layer->attention,
                                     .packed_size = layer->attention_size,
                                     .batch = 1,
                                     .q_len = rows,
                                     .x = {.data = x},
                                     .out = {.data = y},
                                     .rotation = &rotation,
                                     .attention = attention,
                                     .cached = {.data = cached}};
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    expect_ok(attnkit_layer_workspace(&args, exec, &bytes, message), message);
    reserve(exec, bytes);
    expect_ok(attnkit_layer(&args, exec, message), message);
}

static void feed_forward(const struct layer *layer, int64_t rows, const float *x, float *y,
                         attnkit_exec *exec)
{
    float *gate = allocate_floats(rows * D_FF);
    float *up = allocate_floats(rows * D_FF);
    linear(&layer->gate, rows, x, gate, exec);
    linear(&layer->up, rows, x, up, exec);
    silu_times(rows * D_FF, gate, up);
    linear(&layer->down, rows, gate, y, exec);
    free(gate);
    free(up);
}

/* Appends tokens to the sequence. Row i of logits [count][VOCAB] predicts the token after
 * tokens[i]. */
static void run(const struct model *m, struct sequence *s, int64_t count, const int32_t *tokens,
                float *logits, attnkit_exec *exec)
{
    float *x = allocate_floats(count * D_MODEL); /* the residual stream */
    float *normed = allocate_floats(count * D_MODEL);
    float *y = allocate_floats(count * D_MODEL);
    embed(m, count, tokens, x);
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *layer = &m->layers[i];
        rms_norm(count, x, layer->attention_norm, normed);
        attend(layer, &s->attention[i], &s->cached, count, normed, y, exec);
        add(count * D_MODEL, x, y);
        rms_norm(count, x, layer->feed_forward_norm, normed);
        feed_forward(layer, count, normed, y, exec);
        add(count * D_MODEL, x, y);
    }
    rms_norm(count, x, m->norm, normed);
    linear(&m->head, count, normed, logits, exec);
    s->cached += count;
    free(x);
    free(normed);
    free(y);
}

static int32_t most_likely(const float logits[VOCAB])
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Runs the prompt as a whole (prefill), then the answer token by token (decoding). */
static void generate(const struct model *m, struct sequence *s, int32_t tokens[TOKENS],
                     float *logits, attnkit_exec *exec)
{
    run(m, s, PROMPT, tokens, logits, exec);
    for (int i = PROMPT; i < TOKENS; i++) {
        tokens[i] = most_likely(logits + (i - 1) * VOCAB);
        run(m, s, 1, &tokens[i], logits + i * VOCAB, exec);
    }
}

/* -------------------------------------------------------------------------------- the checks */

/* Runs the tokens in parts of `part` tokens. Returns whether the logits have the bits of
 * `wanted`. */
static bool same_in_parts(const struct model *m, void begin(struct sequence *s), int part,
                          const int32_t tokens[TOKENS], const float *wanted, attnkit_exec *exec)
{
    float *logits = allocate_floats(TOKENS * VOCAB);
    struct sequence s;
    begin(&s);
    for (int i = 0; i < TOKENS; i += part) {
        const int count = TOKENS - i < part ? TOKENS - i : part;
        run(m, &s, count, tokens + i, logits + i * VOCAB, exec);
    }
    end(&s);
    const bool same = memcmp(logits, wanted, sizeof(float) * TOKENS * VOCAB) == 0;
    free(logits);
    printf("  in parts of %2d: logits have %s bits\n", part, same ? "the same" : "OTHER");
    return same;
}

/* Returns whether the first token changes the logits after the last token. A model that forgets
 * earlier tokens would pass the other checks. */
static bool remembers(const struct model *m, void begin(struct sequence *s),
                      const int32_t tokens[TOKENS], const float *logits, attnkit_exec *exec)
{
    int32_t others[TOKENS];
    memcpy(others, tokens, sizeof others);
    others[0] = (tokens[0] + 1) % VOCAB;
    float *changed = allocate_floats(TOKENS * VOCAB);
    struct sequence s;
    begin(&s);
    run(m, &s, TOKENS, others, changed, exec);
    end(&s);
    float most = 0;
    for (int i = (TOKENS - 1) * VOCAB; i < TOKENS * VOCAB; i++)
        most = fmaxf(most, fabsf(changed[i] - logits[i]));
    free(changed);
    printf("  another first token changes the last logits by up to %.2g\n", (double)most);
    return most > 1e-3f && most < 100;
}

static bool check(const char *name, attnkit_type type, void begin(struct sequence *s))
{
    attnkit_exec exec = {.size = sizeof exec};
    float *logits = allocate_floats(TOKENS * VOCAB);
    int32_t tokens[TOKENS];
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (i * i + 7 * i + 3) % VOCAB;
    struct model m;
    make_model(&m, type);

    struct sequence s;
    begin(&s);
    generate(&m, &s, tokens, logits, &exec);
    end(&s);
    printf("%s: %d tokens, then", name, PROMPT);
    for (int i = PROMPT; i < TOKENS; i++)
        printf(" %d", (int)tokens[i]);
    printf("\n");

    bool ok = remembers(&m, begin, tokens, logits, &exec);
    const int parts[] = {TOKENS, 20, 1}; /* all tokens at once, parts of 20, one by one */
    for (int i = 0; i < 3; i++)
        ok &= same_in_parts(&m, begin, parts[i], tokens, logits, &exec);
    free_model(&m);
    free(logits);
    free(exec.workspace);
    return ok;
}

int main(void)
{
    const bool plain = check("binary32", ATTNKIT_F32, begin_dense);
    const bool small = check("Q8_0 in pages and tiles", ATTNKIT_Q8_0, begin_paged);
    return plain && small ? 0 : 1;
}
