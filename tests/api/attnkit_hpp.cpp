// SPDX-License-Identifier: Apache-2.0
//
// attnkit.hpp, included before any other header, compiles without a warning. Its functions have the
// results of the C functions, and throw an exception if the C function refuses the arguments.
#include <attnkit.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace
{

constexpr int heads = 2, keys = 37, dim = 32;
constexpr std::size_t cache_size = heads * keys * dim;

void expect(bool is_so, const char *what)
{
    if (is_so)
        return;
    std::fprintf(stderr, "attnkit_hpp: %s\n", what);
    std::exit(1);
}

// Calls a function that must throw an attnkit::error with this status and these words.
template <class Function>
void expect_error(attnkit_status status, const char *words, Function refused)
{
    try {
        refused();
    } catch (const attnkit::error &error) {
        expect(error.status() == status, error.what());
        expect(std::string(error.what()).find(words) != std::string::npos, error.what());
        return;
    }
    expect(false, words);
}

std::vector<float> numbers(std::size_t count, unsigned seed)
{
    std::vector<float> made(count);
    for (float &x : made) {
        seed = seed * 1664525 + 1013904223;
        x = static_cast<float>(seed >> 8) / (1 << 23) - 1;
    }
    return made;
}

const std::vector<float> q = numbers(heads * dim, 1);
const std::vector<float> k = numbers(cache_size, 2), v = numbers(cache_size, 3);

attnkit_attention_args attention_into(std::vector<float> &out)
{
    auto args = attnkit::make<attnkit_attention_args>();
    args.batch = 1;
    args.q_heads = args.kv_heads = heads;
    args.q_len = 1;
    args.kv_len = keys;
    args.head_dim = dim;
    args.q = attnkit::tensor(q.data());
    args.k = attnkit::tensor(k.data());
    args.v = attnkit::tensor(v.data());
    args.out = attnkit::tensor(out.data());
    return args;
}

void backwards(void *, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    for (int64_t i = n; i-- > 0;)
        task(arg, i);
}

std::vector<float> attention_in_c()
{
    std::vector<float> out(heads * dim), scratch(1 << 20);
    const attnkit_attention_args args = attention_into(out);
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    exec.workspace = scratch.data();
    exec.workspace_size = scratch.size() * sizeof(float);
    expect(attnkit_attention(&args, &exec, nullptr) == ATTNKIT_OK, "attnkit_attention");
    return out;
}

void test_attention()
{
    const std::vector<float> wanted = attention_in_c();
    std::vector<float> out(heads * dim);
    attnkit::workspace scratch;
    auto args = attention_into(out);
    attnkit::attention(args, scratch);
    expect(out == wanted, "attention");
    expect(scratch.size() == attnkit::attention_workspace(args), "workspace");

    auto exec = attnkit::make<attnkit_exec>();
    exec.threads = 3;
    exec.parallel_for = backwards;
    out.assign(out.size(), -1);
    attnkit::attention(args, scratch, exec);
    expect(out == wanted, "attention in a parallel-for");
    out.assign(out.size(), -1);
    attnkit::attention(args, scratch.in(exec));
    expect(out == wanted, "attention as in C");

    args.out.type = 99;
    expect_error(ATTNKIT_UNSUPPORTED, "out.type is 99", [&] { attnkit::attention(args, scratch); });
    expect_error(ATTNKIT_UNSUPPORTED, "out.type is 99",
                 [&] { attnkit::attention_plan plan(args); });
}

void test_plan()
{
    const std::vector<float> wanted = attention_in_c();
    std::vector<float> out(heads * dim);
    attnkit::workspace scratch(16);
    attnkit::attention_plan first(attention_into(out));
    const attnkit::attention_plan plan(std::move(first));
    auto data = attnkit::make<attnkit_attention_data>();
    data.batch = data.q_len = 1;
    data.kv_len = keys;
    data.q = q.data();
    data.k = k.data();
    data.v = v.data();
    data.out = out.data();
    plan.run(data, scratch);
    expect(out == wanted, "a run of a plan");
    std::size_t bytes;
    expect(attnkit_attention_plan_workspace(plan.get(), &bytes, nullptr) == ATTNKIT_OK &&
               bytes == plan.workspace_size(),
           "workspace of a plan");
    data.kv_len = keys + 1;
    expect_error(ATTNKIT_BAD_ARGUMENT, "kv_len", [&] { plan.run(data, scratch); });
    data.kv_len = keys;
    expect_error(ATTNKIT_BAD_WORKSPACE, "workspace",
                 [&] { plan.run(data, attnkit::make<attnkit_exec>()); });
}

// Appends two rows of each head to a cache [heads][4][dim], as rows 1 and 2 of the head. The starts
// are 32-bit or 64-bit integers.
template <class Int> void test_append()
{
    const Int starts[] = {1};
    std::vector<float> cache(heads * 4 * dim), again;
    attnkit::workspace scratch;
    auto args = attnkit::make<attnkit_append_args>();
    args.batch = 1;
    args.heads = heads;
    args.len = 2;
    args.dim = dim;
    args.capacity = 4;
    args.src = attnkit::strided(attnkit::tensor(k.data()), 0, sizeof(float) * keys * dim,
                                sizeof(float) * dim);
    args.dst = attnkit::tensor(cache.data());
    args.starts = attnkit::ints(starts);
    attnkit::append(args, scratch);
    expect(scratch.size() == attnkit::append_workspace(args), "workspace of an append");
    for (int head = 0; head < heads; head++)
        expect(!std::memcmp(&cache[static_cast<std::size_t>(head * 4 + 1) * dim],
                            &k[static_cast<std::size_t>(head * keys) * dim],
                            2 * dim * sizeof(float)),
               "append");
    again = cache;
    cache.assign(cache.size(), 0);
    const attnkit::append_plan plan(args);
    auto data = attnkit::make<attnkit_append_data>();
    data.batch = 1;
    data.len = 2;
    data.src = k.data();
    data.dst = cache.data();
    data.starts = starts;
    plan.run(data, scratch);
    expect(cache == again, "a run of an append");
}

struct aligned_memory {
    explicit aligned_memory(std::size_t bytes) : memory(bytes + 64), size(bytes)
    {
        const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
        data = memory.data() + (64 - address % 64) % 64;
    }
    std::vector<unsigned char> memory;
    unsigned char *data;
    std::size_t size;
};

void test_linear()
{
    auto packing = attnkit::make<attnkit_pack_args>();
    packing.out_dim = heads;
    packing.in_dim = dim;
    packing.w = attnkit::tensor(k.data());
    aligned_memory packed(attnkit::packed_size(packing));
    packing.packed = packed.data;
    packing.packed_size = packed.size;
    attnkit::pack(packing);

    std::vector<float> y(heads), again(heads);
    attnkit::workspace scratch;
    auto args = attnkit::make<attnkit_linear_args>();
    args.rows = 1;
    args.in_dim = dim;
    args.out_dim = heads;
    args.x = attnkit::tensor(q.data());
    args.w = attnkit::tensor(packed.data);
    args.y = attnkit::tensor(y.data());
    attnkit::linear(args, scratch);
    expect(y[0] != 0 && y[1] != 0, "linear");
    expect(scratch.size() == attnkit::linear_workspace(args), "workspace of a linear map");
    const attnkit::linear_plan plan(args);
    auto data = attnkit::make<attnkit_linear_data>();
    data.rows = 1;
    data.x = q.data();
    data.w = packed.data;
    data.y = again.data();
    plan.run(data, scratch);
    expect(again == y, "a run of a linear map");
}

void test_layer()
{
    const std::vector<float> w = numbers(heads * dim * dim, 4);
    auto weights = attnkit::make<attnkit_layer_weights>();
    weights.d_model = dim;
    weights.q_heads = heads;
    weights.head_dim = dim;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = w.data();
    aligned_memory packed(attnkit::layer_packed_size(weights));
    attnkit::layer_pack(weights, packed.data, packed.size);

    std::vector<float> out(5 * dim), again(5 * dim);
    attnkit::workspace scratch;
    auto args = attnkit::make<attnkit_layer_args>();
    args.packed = packed.data;
    args.packed_size = packed.size;
    args.batch = 1;
    args.q_len = 5;
    args.x = attnkit::tensor(v.data());
    args.out = attnkit::tensor(out.data());
    attnkit::layer(args, scratch);
    expect(out.back() != 0, "layer");
    expect(scratch.size() == attnkit::layer_workspace(args), "workspace of a layer");
    const attnkit::layer_plan plan(args);
    auto data = attnkit::make<attnkit_layer_data>();
    data.packed = packed.data;
    data.packed_size = packed.size;
    data.batch = 1;
    data.q_len = 5;
    data.x = v.data();
    data.out = again.data();
    plan.run(data, scratch);
    expect(again == out, "a run of a layer");
}

void test_others()
{
    const int32_t ids[] = {2, 0};
    std::vector<float> rows(2 * dim);
    auto embedding = attnkit::make<attnkit_embed_args>();
    embedding.count = 2;
    embedding.vocab = 3;
    embedding.dim = dim;
    embedding.ids = attnkit::ints(ids);
    embedding.table = attnkit::tensor(k.data());
    embedding.out = attnkit::tensor(rows.data());
    attnkit::embed(embedding);
    expect(rows[0] == k[2 * dim] && rows[dim] == k[0], "embed");

    auto merging = attnkit::make<attnkit_merge_args>();
    merging.batch = merging.q_heads = merging.q_len = 1;
    merging.value_dim = dim;
    merging.out = attnkit::tensor(rows.data());
    attnkit::merge(merging);
    expect(rows[0] == 0, "merge of nothing");
    merging.parts = -1;
    expect_error(ATTNKIT_BAD_ARGUMENT, "parts", [&] { attnkit::merge(merging); });

    const attnkit_isa_choice choice = attnkit::isa_choose();
    bool found = false;
    for (int32_t i = 0; i < attnkit_isa_count(); i++)
        found = found || !std::strcmp(attnkit::isa_get(i).name, choice.prefill);
    expect(found, "isa_choose");
    expect(!std::strcmp(attnkit::unit_get(0).name, "avx2+vnni"), "unit_get");
    expect_error(ATTNKIT_BAD_ISA, "mmx", [] { attnkit::isa_choose("mmx"); });
    expect_error(ATTNKIT_BAD_ISA, "mmx", [] { attnkit::enable("mmx"); });
}

} // namespace

int main()
{
    test_attention();
    test_plan();
    test_append<int64_t>();
    test_append<int32_t>();
    test_linear();
    test_layer();
    test_others();
    return 0;
}
