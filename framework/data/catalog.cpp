#include "framework/data/dataset.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

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

void register_gpt(DatasetRegistry&);
void register_mock(DatasetRegistry&);
void register_sft(DatasetRegistry&);
void register_instruction(DatasetRegistry&);

DatasetRegistry datasets() {
  DatasetRegistry registry("dataset_type", "gpt", "Dataset type.");
  registry.when_changed(options::Change::order);
  register_gpt(registry);
  register_mock(registry);
  register_sft(registry);
  register_instruction(registry);
  return registry;
}

void register_single(SamplerRegistry&);
void register_cyclic(SamplerRegistry&);

SamplerRegistry samplers() {
  SamplerRegistry registry("dataloader_type", "single", "Order of the training samples.");
  registry.when_changed(options::Change::order);
  register_single(registry);
  register_cyclic(registry);
  return registry;
}

}  // namespace tessera::data
