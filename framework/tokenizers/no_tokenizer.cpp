// For runs on token ids alone: mock data, or files whose tokenizer is not at hand.

#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {
namespace {

std::unique_ptr<Tokenizer> make_no_tokenizer(const options::NoOptions&) { return nullptr; }

}  // namespace

void register_no_tokenizer(TokenizerRegistry& registry) {
  registry.add("none", make_no_tokenizer, "No tokenizer: token ids only.");
}

}  // namespace tessera::tokenizers
