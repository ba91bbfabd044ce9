/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that `attnkit run` and `attnkit layer` share: visibility, score mods, and the
 * execution of the call.
 */
#include "tools/cli/run/run.h"

#include <string.h>

void run_share_options(struct run_options *values, struct option options[RUN_SHARED_OPTIONS])
{
    const struct option shared[] = {
        {"--causal", "FORM",
         "query row i sees the keys up to its position. FORM gives the position:\n"
         "  upper-left     i\n"
         "  bottom-right   i + the number of keys - the number of query rows\n"
         "  OFFSET         i + OFFSET, a whole number",
         &values->causal},
        {"--align", "FORM", "positions as with --causal, but rows also see later keys",
         &values->align},
        {"--window", "LEFT,RIGHT",
         "see the keys from position - LEFT to position + RIGHT; -1: no bound", &values->window},
        {"--keep-first", "N", "with --window, also see the first N keys", &values->keep_first},
        {"--kv-len", "N[,N...]",
         "see only the first N keys: one N, or one for each batch entry. The\n"
         "positions of bottom-right then count only these N keys",
         &values->kv_len},
        {"--q-docs", "FILE",
         "numbers of documents, int32 or int64, [rows of q] or [batch, rows of q]: a\n"
         "row sees the keys with the same number in --kv-docs",
         &values->q_docs},
        {"--kv-docs", "FILE",
         "numbers of the documents of the keys, int32 or int64, [keys] or\n"
         "[batch, keys]",
         &values->kv_docs},
        {"--mask", "FILE", "a mask: bool or uint8, or the types of --bias with --mask-kind add",
         &values->mask.file},
        {"--mask-kind", "KIND",
         "needed with --mask\n"
         "  attend   true, or any byte but 0: the row sees the key\n"
         "  ignore   true, or any byte but 0: the row does not see the key\n"
         "  add      the same as --bias",
         &values->mask.kind},
        {"--mask-dims", "LETTERS", "the mask's dimensions, as letters of bhqk; the last must be k",
         &values->mask.dims},
        {"--mask-bits", "FILE",
         "a mask of uint8, where key j is bit j % 8 of byte j / 8 of a row (in NumPy\n"
         "np.packbits(mask, axis=-1, bitorder=\"little\"))",
         &values->bits.file},
        {"--mask-bits-kind", "KIND", "attend or ignore; needed with --mask-bits",
         &values->bits.kind},
        {"--mask-bits-dims", "LETTERS", "as --mask-dims", &values->bits.dims},
        {"--bias", "FILE", "float32 or float16, added to the scores; -inf masks the key",
         &values->bias.file},
        {"--bias-dims", "LETTERS", "as --mask-dims", &values->bias.dims},
        {"--bias-scales", "FILE", "float32 [heads of q]: each head adds its number times the bias",
         &values->bias_scales},
        {"--scale", "X", "factor of the scores; by default 1 / sqrt(head_dim)", &values->scale},
        {"--softcap", "X", "scores become X * tanh(score / X)", &values->softcap},
        {"--alibi", "FILE",
         "slopes, float32 [heads of q]: slope * (key - position) is added to a score",
         &values->alibi},
        {"--sinks", "FILE",
         "float32 [heads of q]: one more score in each sum of exp, without a value",
         &values->sinks},
        {"--dropout", "P", "multiply weights by 0 with this probability, else by 1 / (1 - P)",
         &values->dropout},
        {"--seed", "N[,N...]", "seed of --dropout, 0 .. 2^64 - 1: one, or one for each batch entry",
         &values->seed},
        {"--isa", "NAME", "the instruction set; attnkit info lists the names", &values->isa},
        {"--threads", "N", "threads, 1 .. 256; by default 1. The bits do not depend on N",
         &values->threads},
        {"--repeat", "N", "run N times; the times include starting the threads", &values->repeat},
        {"--help", NULL, "this text", &values->help},
    };
    _Static_assert(sizeof shared / sizeof *shared == RUN_SHARED_OPTIONS, "each option is listed");
    memcpy(options, shared, sizeof shared);
}
