#include "framework/model/model.h"

namespace tessera {

void register_gpt(ModelRegistry&);

ModelRegistry models() {
  ModelRegistry shelf("model_type", "gpt", "Model architecture.");
  register_gpt(shelf);
  return shelf;
}

}  // namespace tessera
