#pragma once

#include <string>

#include "framework/recipe/registries.h"
#include "tests/model/two_towers.h"
#include "tests/recipe/small_run.h"

namespace tessera::recipe {

/// The built-in registries, and the architecture two_towers.
inline Registries with_two_towers() {
  Registries registries;
  registries.models.add("two_towers", make_two_towers, "An encoder and a decoder, for tests.");
  return registries;
}

/// Three layers of the encoder, two of the decoder; `data` is the prefix of token files (write_token_file).
inline std::string two_towers_recipe(const std::string& data) {
  return "training_config: {training_iters: 6, log_interval: 1, eval_iters: 0, num_threads: 1, tensorboard: false,\n"
         "  resume_training: false}\n"
         "model_config: {model_type: two_towers, encoder_layers: 3, encoder_width: 8, decoder_layers: 2,\n"
         "  decoder_width: 12, seq_length: 8, vocab_size: 64}\n"
         "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\n"
         "dataset_config: {data_path: " +
         data + ", split: \"100,0,0\", batch_size: 2, global_batch_size: 8}\n";
}

}  // namespace tessera::recipe
