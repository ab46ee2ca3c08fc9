#include "framework/data/dataset.h"
#include "framework/data/tokenizer.h"

namespace tessera {

void register_no_tokenizer(TokenizerRegistry&);
void register_gpt2_bpe(TokenizerRegistry&);
void register_null_tokenizer(TokenizerRegistry&);
void register_bert_word_piece(TokenizerRegistry&);
void register_tik_tokenizer(TokenizerRegistry&);
void register_hugging_face(TokenizerRegistry&);
void register_sentencepiece(TokenizerRegistry&);

TokenizerRegistry tokenizers() {
  TokenizerRegistry shelf("tokenizer_type", "none", "Tokenizer type.");
  register_no_tokenizer(shelf);
  register_gpt2_bpe(shelf);
  register_null_tokenizer(shelf);
  register_bert_word_piece(shelf);
  register_tik_tokenizer(shelf);
  register_hugging_face(shelf);
  register_sentencepiece(shelf);
  return shelf;
}

void register_gpt(DatasetRegistry&);
void register_mock(DatasetRegistry&);
void register_sft(DatasetRegistry&);
void register_instruction(DatasetRegistry&);

DatasetRegistry datasets() {
  DatasetRegistry shelf("dataset_type", "gpt", "Dataset type.");
  register_gpt(shelf);
  register_mock(shelf);
  register_sft(shelf);
  register_instruction(shelf);
  return shelf;
}

void register_single(SamplerRegistry&);
void register_cyclic(SamplerRegistry&);

SamplerRegistry samplers() {
  SamplerRegistry shelf("dataloader_type", "single", "Order of the training samples.");
  register_single(shelf);
  register_cyclic(shelf);
  return shelf;
}

}  // namespace tessera
