// SPDX-License-Identifier: Apache-2.0
//
// Computes attention in C++17, by attnkit.hpp. The first call is the example in attnkit.hpp, a
// causal prompt. Then a plan runs decoding steps with a softcap. An error is an exception. The
// results are easy to predict: all scores are 0, so the result of a row is the mean of the rows of
// V that the row sees. The program checks the last element of each result.
#include <attnkit.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace
{

constexpr int q_heads = 8, kv_heads = 2, tokens = 100, dim = 64;

using floats = std::vector<float>; // [head][token][dim]

// Causal attention over n tokens, 8 query heads that share 2 KV heads.
void attend(int64_t n, const floats &q, const floats &k, const floats &v, floats &out,
            attnkit::workspace &scratch)
{
    auto args = attnkit::make<attnkit_attention_args>(); // size is set, all other fields are 0
    args.flags = ATTNKIT_CAUSAL;
    args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    args.batch = 1;
    args.q_heads = 8;
    args.kv_heads = 2;
    args.q_len = args.kv_len = n;
    args.head_dim = 64;
    args.q = attnkit::tensor(q.data());
    args.k = attnkit::tensor(k.data());
    args.v = attnkit::tensor(v.data());
    args.out = attnkit::tensor(out.data());
    attnkit::attention(args, scratch);
}

// Makes a plan for one query row of each head over at most `most_keys` keys. The option softcap is
// in a group, to which the arguments point.
attnkit::attention_plan plan_decoding(int64_t most_keys)
{
    auto scores = attnkit::make<attnkit_score_mods>();
    scores.softcap = 30.0;
    auto args = attnkit::make<attnkit_attention_args>();
    args.batch = args.q_len = 1;
    args.q_heads = q_heads;
    args.kv_heads = kv_heads;
    args.kv_len = most_keys;
    args.head_dim = dim;
    args.q = args.k = args.v = args.out =
        attnkit::tensor(ATTNKIT_LATER); // each run brings the addresses
    args.scores = &scores;
    return attnkit::attention_plan(args);
}

// Prints the last element of out, and returns whether it is the mean of 0 .. keys - 1.
bool is_mean(const floats &out, int keys)
{
    std::printf("the last row is the mean of 0 .. %d: %g\n", keys - 1,
                static_cast<double>(out.back()));
    return std::fabs(out.back() - static_cast<float>(keys - 1) / 2) < 1e-3f;
}

bool run()
{
    floats q(q_heads * tokens * dim), k(kv_heads * tokens * dim), v(k.size()), out(q.size());
    for (std::size_t i = 0; i < v.size(); i++)
        v[i] = static_cast<float>(i / dim % tokens); // the token's number
    attnkit::workspace scratch;                      // shared by all calls, one after the other
    attend(tokens, q, k, v, out, scratch);
    bool ok = is_mean(out, tokens);

    const attnkit::attention_plan plan = plan_decoding(tokens);
    floats row(q_heads * dim);
    auto data = attnkit::make<attnkit_attention_data>();
    data.batch = data.q_len = 1;
    data.q = q.data();
    data.k = k.data();
    data.v = v.data();
    data.out = row.data();
    for (int keys = tokens - 3; keys <= tokens; keys++) { // each turn is a decoding step
        data.kv_len = keys;
        plan.run(data, scratch);
        ok = is_mean(row, keys) && ok;
    }

    try {
        attend(-1, q, k, v, out, scratch);
        return false;
    } catch (const attnkit::error &refused) {
        std::printf("refused: %s\n", refused.what());
        return refused.status() == ATTNKIT_BAD_ARGUMENT && ok;
    }
}

} // namespace

int main()
{
    try {
        return run() ? 0 : 1;
    } catch (const std::exception &problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
