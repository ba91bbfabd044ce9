// SPDX-License-Identifier: Apache-2.0
//
// Runs several sequences in one context of llama.cpp, and each sequence alone, and compares the
// bits of their logits. The sequences have separate streams, or share one cache. The program also
// computes the attention of the last step over the shared cache by attnkit's key_index, which gives
// the order of the keys of a sequence. ggml's op cannot express this order.
//
//     sequences     prints TAP; sequences.py runs it with the backend
#include "tools/llamacpp/random_model.h"

#include <attnkit.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace
{

constexpr int sequences = 3, steps = 5, room = 1024;
constexpr int prompts[sequences] = {700, 300, 520};

// The inputs and the result of the attention of the first layer.
struct attention {
    std::vector<float> q, out;  // q: [head][token][64], out: [token][head][64], as in ggml
    std::vector<uint16_t> k, v; // [head][cell][64]
    int64_t tokens = 0, heads = 0, cells = 0, kv_heads = 0;
};

template <class T> std::vector<T> rows_of(const ggml_tensor *t)
{
    std::vector<T> all;
    for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
        for (int64_t i1 = 0; i1 < t->ne[1]; i1++) {
            const char *const row = static_cast<char *>(t->data) +
                                    i2 * static_cast<int64_t>(t->nb[2]) +
                                    i1 * static_cast<int64_t>(t->nb[1]);
            all.insert(all.end(), reinterpret_cast<const T *>(row),
                       reinterpret_cast<const T *>(row) + t->ne[0]);
        }
    return all;
}

// llama.cpp first calls this function with `asks` true for each tensor. The answer says whether
// this program wants to see the tensor. If the answer is true, llama.cpp computes the tensor and
// calls the function again with `asks` false. The function then copies the attention to `to`.
bool see(ggml_tensor *t, bool asks, void *to)
{
    const bool wanted =
        t->op == GGML_OP_FLASH_ATTN_EXT && std::strstr(t->src[1]->name, "cache_k_l0");
    if (asks || !wanted)
        // The answer to the question, or true, which means that llama.cpp may go on.
        return wanted || !asks;
    attention &a = *static_cast<attention *>(to);
    a.q = rows_of<float>(t->src[0]);
    a.k = rows_of<uint16_t>(t->src[1]);
    a.v = rows_of<uint16_t>(t->src[2]);
    a.out = rows_of<float>(t);
    a.tokens = t->src[0]->ne[1];
    a.heads = t->src[0]->ne[2];
    a.cells = t->src[1]->ne[1];
    a.kv_heads = t->src[1]->ne[2];
    return true;
}

struct cell {
    int sequence, position;
};

// The results of a run. `cells` is the content of a shared cache, whose cells are filled in the
// order of the tokens.
struct result {
    std::vector<float> logits[sequences];
    std::vector<cell> cells;
    attention last; // attention of the last step
};

int token_of(int sequence, int position, int text)
{
    return (position * 7919 + sequence * 104729 + text * 31) % random_vocabulary;
}

class run
{
  public:
    run(llama_model *model, bool shared, int threads)
    {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = room * sequences;
        params.n_batch = 2048;
        params.n_ubatch = 512;
        params.n_seq_max = sequences;
        params.n_threads = params.n_threads_batch = threads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.kv_unified = shared;
        params.cb_eval = see;
        params.cb_eval_user_data = &made_.last;
        params.no_perf = true;
        context_ = llama_init_from_model(model, params);
        if (!context_)
            fail("no context");
        batch_ = llama_batch_init(2048, 0, 1);
        batch_.n_tokens = 0;
    }

    ~run()
    {
        llama_batch_free(batch_);
        llama_free(context_);
    }

    void add(int sequence, int text)
    {
        const int position = positions_[sequence]++, i = batch_.n_tokens++;
        batch_.token[i] = token_of(sequence, position, text);
        batch_.pos[i] = position;
        batch_.n_seq_id[i] = 1;
        batch_.seq_id[i][0] = sequence;
        batch_.logits[i] = 1;
        made_.cells.push_back({sequence, position});
    }

    void decode()
    {
        if (llama_decode(context_, batch_) != 0)
            fail("llama_decode failed");
        for (int i = 0; i < batch_.n_tokens; i++) {
            const float *const row = llama_get_logits_ith(context_, i);
            std::vector<float> &of = made_.logits[batch_.seq_id[i][0]];
            of.insert(of.end(), row, row + random_vocabulary);
        }
        batch_.n_tokens = 0;
    }

    const result &made() const
    {
        return made_;
    }

  private:
    llama_context *context_;
    llama_batch batch_;
    int positions_[sequences] = {};
    result made_;
};

// Runs the prompts in one batch, then one token of each sequence in each step. `only` is the only
// sequence to run, or -1 for all. `text` chooses the texts of all sequences except sequence `kept`,
// which has text 0.
result make(llama_model *model, bool shared, int threads, int only, int kept = -1, int text = 0)
{
    run r(model, shared, threads);
    for (int step = 0; step <= steps; step++) {
        for (int s = 0; s < sequences; s++)
            for (int i = 0; (only < 0 || s == only) && i < (step ? 1 : prompts[s]); i++)
                r.add(s, s == kept ? 0 : text);
        r.decode();
    }
    return r.made();
}

bool same(const std::vector<float> &a, const std::vector<float> &b, size_t count)
{
    return a.size() >= count && b.size() >= count &&
           std::memcmp(a.data(), b.data(), count * sizeof a[0]) == 0;
}

bool same(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && same(a, b, a.size());
}

bool same_logits(const result &a, const result &b)
{
    bool ok = true;
    for (int s = 0; s < sequences; s++)
        ok = ok && same(a.logits[s], b.logits[s]);
    return ok;
}

// Returns an array [sequence][cell] of the positions of the keys, or -1 where the cell has no key
// of the sequence.
std::vector<int32_t> index_of(const result &r)
{
    std::vector<int32_t> index(static_cast<size_t>(sequences * r.last.cells), -1);
    for (size_t c = 0; c < r.cells.size(); c++)
        index[static_cast<size_t>(r.cells[c].sequence * r.last.cells) + c] = r.cells[c].position;
    return index;
}

attnkit_tensor tensor(const void *data, attnkit_type type, int64_t batch, int64_t head, int64_t row)
{
    return attnkit_tensor{data, {batch, head, row}, type, ATTNKIT_STRIDED};
}

// Computes the attention of the last step, which has one token of each sequence. The result is
// [sequence][head][64].
std::vector<float> by_key_index(const result &r)
{
    const attention &a = r.last;
    const std::vector<int32_t> index = index_of(r);
    std::vector<float> out(a.q.size());
    attnkit_kv_storage storage;
    attnkit_kv_storage_init(&storage);
    storage.key_index = {index.data(), ATTNKIT_INT32, 0};
    storage.key_index_stride = a.cells;
    attnkit_attention_args args;
    attnkit_attention_args_init(&args);
    args.batch = sequences;
    args.q_heads = a.heads;
    args.kv_heads = a.kv_heads;
    args.q_len = 1;
    args.kv_len = a.cells;
    args.head_dim = 64;
    args.q = tensor(a.q.data(), ATTNKIT_F32, 64 * 4, a.tokens * 64 * 4, 64 * 4);
    args.k = tensor(a.k.data(), ATTNKIT_F16, 0, a.cells * 64 * 2, 64 * 2);
    args.v = tensor(a.v.data(), ATTNKIT_F16, 0, a.cells * 64 * 2, 64 * 2);
    args.out = tensor(out.data(), ATTNKIT_F32, a.heads * 64 * 4, 64 * 4, 64 * 4);
    args.storage = &storage;
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    if (attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail(message);
    std::vector<char> workspace(exec.workspace_size);
    exec.workspace = workspace.data();
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        fail(message);
    return out;
}

bool check(const char *name, bool ok)
{
    static int number = 0;
    std::printf("%s %d - sequences: %s\n", ok ? "ok" : "not ok", ++number, name);
    std::fflush(stdout);
    return ok;
}

} // namespace

int main()
{
    llama_model *const model = random_model("llama", 2);
    std::vector<result> alone;
    for (int s = 0; s < sequences; s++)
        alone.push_back(make(model, false, 1, s));
    std::printf("1..6\n");

    const result streams = make(model, false, 1, -1), shared = make(model, true, 1, -1);
    bool together = true, other_texts = true, by_index = true, moved = true;
    const std::vector<float> indexed = by_key_index(shared);
    for (int s = 0; s < sequences; s++) {
        const size_t own = static_cast<size_t>(s), row = indexed.size() / sequences;
        const result other = make(model, true, 1, -1, s, 1);
        together &= same(streams.logits[s], alone[own].logits[s]);
        other_texts &= same(other.logits[s], shared.logits[s]);
        moved &= same(shared.logits[s], alone[own].logits[s]);
        const auto begin = indexed.begin() + static_cast<std::ptrdiff_t>(own * row);
        by_index &= same({begin, begin + static_cast<std::ptrdiff_t>(row)}, alone[own].last.out);
    }
    bool ok = check("streams of their own: the same bits together and alone", together);
    ok &= check("streams of their own: the same bits on 1 and 3 threads",
                same_logits(streams, make(model, false, 3, -1)));
    ok &= check("one cache: the same bits on 1 and 3 threads",
                same_logits(shared, make(model, true, 3, -1)));
    ok &= check("one cache: the same bits in the same cells, with and without later sequences",
                same(shared.logits[0], alone[0].logits[0], prompts[0] * random_vocabulary));
    ok &= check("one cache: the same bits whatever the cells of other sequences hold", other_texts);
    ok &= check("one cache: by key_index, each sequence has the same bits of attention as alone",
                by_index);
    std::printf("# one cache: without key_index, %s sequence has the same logits as alone\n",
                moved ? "each" : "not each");
    llama_model_free(model);
    return ok ? 0 : 1;
}
