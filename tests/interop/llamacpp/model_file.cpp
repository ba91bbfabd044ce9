// SPDX-License-Identifier: Apache-2.0
//
// Writes a model with random weights to a file, for the programs of llama.cpp.
//
//     model_file OUT
#include "tools/llamacpp/random_model.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("OUT");
    llama_model *const model = random_model("llama", 2);
    llama_model_save_to_file(model, argv[1]);
    llama_model_free(model);
    return 0;
}
