#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

void register_no_tokenizer(TokenizerRegistry&);
void register_gpt2_bpe(TokenizerRegistry&);
void register_null_tokenizer(TokenizerRegistry&);
void register_bert_word_piece(TokenizerRegistry&);
void register_tik_tokenizer(TokenizerRegistry&);
void register_hugging_face(TokenizerRegistry&);
void register_sentencepiece(TokenizerRegistry&);

TokenizerRegistry tokenizers() {
  TokenizerRegistry registry("tokenizer_type", "none", "Tokenizer type.");
  registry.when_changed(options::Change::weights);
  register_no_tokenizer(registry);
  register_gpt2_bpe(registry);
  register_null_tokenizer(registry);
  register_bert_word_piece(registry);
  register_tik_tokenizer(registry);
  register_hugging_face(registry);
  register_sentencepiece(registry);
  return registry;
}

}  // namespace tessera::tokenizers
