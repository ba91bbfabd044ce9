/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the options that are numbers or words, for `attnkit run` and `attnkit layer`. Also checks
 * that the user has given each option that another given option needs. All this is done before any
 * file is read, so that mistakes in these options are reported first.
 */
#include "tools/cli/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/parallel.h"

enum { MAX_REPEAT = 1000000 };

/* --------------------------------------------------------- options that need each other */

static bool check_needed(const struct run_options *options)
{
    const char *const position = options->causal ? options->causal : options->align;
    const bool adds_mask = options->mask.kind && !strcmp(options->mask.kind, "add");
    const char *const bias = adds_mask ? options->mask.file : options->bias.file;
    const struct option_pair pairs[] = {
        {"--mask", options->mask.file, "--mask-kind", options->mask.kind},
        {"--mask-kind", options->mask.kind, "--mask", options->mask.file},
        {"--mask-dims", options->mask.dims, "--mask", options->mask.file},
        {"--mask-bits", options->bits.file, "--mask-bits-kind", options->bits.kind},
        {"--mask-bits-kind", options->bits.kind, "--mask-bits", options->bits.file},
        {"--mask-bits-dims", options->bits.dims, "--mask-bits", options->bits.file},
        {"--bias-dims", options->bias.dims, "--bias", options->bias.file},
        {"--bias-scales", options->bias_scales, "--bias or --mask-kind add", bias},
        {"--window", options->window, "--causal or --align", position},
        {"--alibi", options->alibi, "--causal or --align", position},
        {"--dropout", options->dropout, "--causal or --align", position},
        {"--keep-first", options->keep_first, "--window", options->window},
        {"--q-docs", options->q_docs, "--kv-docs", options->kv_docs},
        {"--kv-docs", options->kv_docs, "--q-docs", options->q_docs},
        {"--dropout", options->dropout, "--seed", options->seed},
        {"--seed", options->seed, "--dropout", options->dropout},
        {"--weights-kind", options->weights_kind, "--weights", options->weights},
        {"--integers", options->integers, "--kv-type", options->kv_type},
        {"--bf16-products", options->bf16_products, "--kv-type", options->kv_type},
    };
    return options_go_together(pairs, sizeof pairs / sizeof *pairs);
}

/* ------------------------------------------------------------------- which keys a row sees */

/* Reads the argument of --causal or --align: where row 0 is. `option` is for messages. */
static bool read_position(const char *option, const char *text, struct run *run)
{
    attnkit_attention_args *const args = &run->args;
    if (!strcmp(text, "upper-left"))
        args->align = ATTNKIT_ALIGN_UPPER_LEFT;
    else if (!strcmp(text, "bottom-right"))
        args->align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    else
        args->align = ATTNKIT_ALIGN_OFFSETS;
    return args->align != ATTNKIT_ALIGN_OFFSETS ||
           parse_integer(option, text, INT64_MIN, INT64_MAX, &run->offset);
}

static bool read_positions(const struct run_options *options, struct run *run)
{
    if (options->causal && options->align)
        return complain("options --causal and --align both say where the query rows are");
    if (options->causal)
        run->args.flags |= ATTNKIT_CAUSAL;
    if (options->causal &&
        !read_position("--causal, neither upper-left nor bottom-right,", options->causal, run))
        return false;
    return !options->align ||
           read_position("--align, neither upper-left nor bottom-right,", options->align, run);
}

static bool read_window(const char *text, struct run *run)
{
    const char *const comma = strchr(text, ',');
    char left[32];
    if (!comma || comma - text >= (int)sizeof left)
        return complain("--window is '%s': must be LEFT,RIGHT", text);
    memcpy(left, text, (size_t)(comma - text));
    left[comma - text] = '\0';
    run->visibility.window = &run->window;
    return parse_integer("LEFT of --window", left, -1, INT64_MAX, &run->window.left) &&
           parse_integer("RIGHT of --window", comma + 1, -1, INT64_MAX, &run->window.right);
}

static bool read_visible(const struct run_options *options, struct run *run)
{
    return read_positions(options, run) &&
           (!options->window || read_window(options->window, run)) &&
           (!options->keep_first || parse_integer("--keep-first", options->keep_first, 0, INT64_MAX,
                                                  &run->window.keep_first)) &&
           (!options->kv_len ||
            parse_naturals("--kv-len", options->kv_len, INT64_MAX, &run->kv_len));
}

/* --------------------------------------------------------------------------------- masks */

static bool check_dims(const char *option, const char *dims)
{
    const size_t length = dims ? strlen(dims) : 0;
    if (!dims)
        return true;
    bool good = length > 0 && dims[length - 1] == 'k' && strspn(dims, "bhqk") == length;
    for (size_t i = 0; i < length; i++)
        good = good && !strchr(dims + i + 1, dims[i]);
    return good || complain("%s is '%s': must be letters of bhqk, each at most once, with k last",
                            option, dims);
}

/* Sets *kind to the kind that the text names. `words` begins with the words for the kinds, in the
 * order of the kinds from ATTNKIT_MASK_ATTEND on. */
static bool read_kind(const char *option, const char *text, const char *const *words,
                      attnkit_mask_kind *kind)
{
    int index;
    if (!parse_word(option, text, words, &index))
        return false;
    *kind = index + ATTNKIT_MASK_ATTEND;
    return true;
}

static struct run_mask mask_file(const char *option, const struct mask_options *options)
{
    return (struct run_mask){.option = option, .file = options->file, .dims = options->dims};
}

/* Takes the options of --mask and --bias. With --mask-kind add, the file of --mask has numbers to
 * add to scores. Otherwise it has bytes. "add" is in `words` only for the error message. */
static bool read_mask(const struct run_options *options, struct run *run)
{
    static const char *const words[] = {"attend", "ignore", "add", NULL};
    run->bias = mask_file("--bias", &options->bias);
    if (!options->mask.file)
        return true;
    if (!strcmp(options->mask.kind, "add")) {
        run->bias = mask_file("--mask", &options->mask);
        return !options->bias.file ||
               complain("options --bias and --mask-kind=add both give numbers to add to scores");
    }
    run->bytes = mask_file("--mask", &options->mask);
    return read_kind("--mask-kind", options->mask.kind, words, &run->visibility.mask_kind);
}

static bool read_masks(const struct run_options *options, struct run *run)
{
    static const char *const words[] = {"attend", "ignore", NULL};
    run->bits = mask_file("--mask-bits", &options->bits);
    return check_dims("--mask-dims", options->mask.dims) &&
           check_dims("--mask-bits-dims", options->bits.dims) &&
           check_dims("--bias-dims", options->bias.dims) && read_mask(options, run) &&
           (!options->bits.file || read_kind("--mask-bits-kind", options->bits.kind, words,
                                             &run->visibility.mask_bits_kind));
}

/* ----------------------------------------------------------------- scores, types and threads */

static bool read_scores(const struct run_options *options, struct run *run)
{
    attnkit_score_mods *const scores = &run->scores;
    if (options->scale)
        run->args.flags |= ATTNKIT_SCALE_GIVEN;
    return (!options->scale || parse_real("--scale", options->scale, &run->args.scale)) &&
           (!options->softcap || parse_real("--softcap", options->softcap, &scores->softcap)) &&
           (!options->dropout || parse_real("--dropout", options->dropout, &scores->dropout)) &&
           (!options->seed || parse_naturals("--seed", options->seed, UINT64_MAX, &run->seed));
}

/* Reads the types, and the kind of the weights. The words for types are in the order of the values
 * of attnkit_type. The words for kinds are in the order of the kinds, from ATTNKIT_WEIGHTS_SOFTMAX
 * on. */
static bool read_types(const struct run_options *options, struct run *run)
{
    static const char *const cache_types[] = {"f32",  "f16",  "bf16",    "i8",   "q8_0",
                                              "q4_0", "q4_1", "q5_0",    "q5_1", "iq4_nl",
                                              "q1_0", "q2_0", "f8_e4m3", NULL};
    static const char *const out_types[] = {"f32", "f16", "bf16", NULL};
    static const char *const kinds[] = {"softmax", "biased", "capped", "scaled", NULL};
    int cache = 0, out = 0, kind = 0;
    if (options->kv_type && !parse_word("--kv-type", options->kv_type, cache_types, &cache))
        return false;
    if (options->out_type && !parse_word("--out-type", options->out_type, out_types, &out))
        return false;
    if (options->weights_kind && !parse_word("--weights-kind", options->weights_kind, kinds, &kind))
        return false;
    run->kv_type = cache;
    run->args.out.type = out;
    if (options->weights)
        run->weights_out.kind = kind + ATTNKIT_WEIGHTS_SOFTMAX;
    return true;
}

static bool read_integers(const struct run_options *options, struct run *run)
{
    if (!options->integers)
        return true;
    if (run->kv_type != ATTNKIT_I8 && run->kv_type != ATTNKIT_Q8_0)
        return complain("option --integers needs --kv-type i8 or q8_0: --kv-type is %s",
                        options->kv_type);
    if (options->weights)
        return complain("options --integers and --weights do not go together");
    run->args.flags |= ATTNKIT_INTEGERS;
    return true;
}

static bool read_bf16_products(const struct run_options *options, struct run *run)
{
    int64_t parts;
    if (!options->bf16_products)
        return true;
    if (!parse_integer("--bf16-products", options->bf16_products, 1, 2, &parts))
        return false;
    if (run->kv_type != ATTNKIT_BF16)
        return complain("option --bf16-products needs --kv-type bf16: --kv-type is %s",
                        options->kv_type);
    if (options->weights || options->dropout)
        return complain("options --bf16-products and %s do not go together",
                        options->weights ? "--weights" : "--dropout");
    run->args.flags |= ATTNKIT_BF16_PRODUCTS | (parts == 1 ? ATTNKIT_SHORT_WEIGHTS : 0);
    return true;
}

static bool read_execution(const struct run_options *options, struct run *run)
{
    run->repeat = 1;
    run->exec.threads = 1;
    run->exec.isa = options->isa;
    if (options->threads &&
        !parse_integer("--threads", options->threads, 1, PARALLEL_MAX, &run->exec.threads))
        return false;
    return !options->repeat ||
           parse_integer("--repeat", options->repeat, 1, MAX_REPEAT, &run->repeat);
}

/* Initializes the args of the call and the groups of options, with no option set. */
static void begin_args(struct run *run)
{
    attnkit_attention_args *const args = &run->args;
    attnkit_attention_args_init(args);
    attnkit_kv_storage_init(&run->storage);
    attnkit_visibility_init(&run->visibility);
    attnkit_window_init(&run->window);
    attnkit_score_mods_init(&run->scores);
    attnkit_weights_out_init(&run->weights_out);
    args->storage = &run->storage;
    args->visibility = &run->visibility;
    args->scores = &run->scores;
    args->weights = &run->weights_out;
}

bool run_read_words(const struct run_options *options, struct run *run)
{
    begin_args(run);
    return check_needed(options) && read_visible(options, run) && read_masks(options, run) &&
           read_scores(options, run) && read_types(options, run) && read_integers(options, run) &&
           read_bf16_products(options, run) && read_execution(options, run);
}
