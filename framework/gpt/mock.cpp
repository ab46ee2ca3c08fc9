// Data without a file, for trying out models and machines: Megatron-LM's MockGPTDataset.

#include "framework/data/legacy_random.h"
#include "framework/gpt/gpt_splits.h"
#include "framework/gpt/mock_source.h"

namespace tessera::gpt {

MockSource::MockSource(std::int64_t vocab_size, std::int32_t eod, std::int64_t documents)
    : vocab_size_(vocab_size),
      eod_(eod),
      lengths_(data::numpy_integers(0, 1, 4096, static_cast<std::size_t>(documents))) {
  if (vocab_size < 2)
    throw ConfigError(text("dataset_type mock counts up to the end of the vocabulary; it has ", vocab_size,
                           " entries, at least 2 are needed"));
}

void MockSource::read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const {
  const auto last = length(sequence) - 1;
  for (auto& token : out) {
    token = offset == last ? eod_ : static_cast<std::int32_t>(1 + offset % (vocab_size_ - 1));
    ++offset;
  }
}

std::string MockSource::place(std::int64_t sequence, std::int64_t offset) const {
  return text("mock data: document ", sequence, ", token ", offset, " (both from 0)");
}

namespace {

struct MockOptions {
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool add_extra_token_to_sequence = true, drop_last_partial_validation_sequence = true;
  bool create_attention_mask_in_dataloader = true, dataloader_inter_document_masking = false;
  bool allow_ambiguous_pad_tokens = false;
  std::optional<std::string> split, data_cache_path;
  std::int64_t mock_documents = MockSource::documents_of_megatron;
};

void describe(options::Schema<MockOptions>& s) {
  s.when_changed(options::Change::told);
  describe_documents(s);
  s.option("split", &MockOptions::split, "Ignored with mock data, as in Megatron-LM: each split is a third.")
      .when_changed(options::Change::silent);
  s.option("data_cache_path", &MockOptions::data_cache_path,
           "Folder of the index files; null: they are kept in memory.")
      .when_changed(options::Change::silent);
  s.option(
       "mock_documents", &MockOptions::mock_documents,
       "Number of documents, whose mean length is 2048 tokens; each split has a third of them. With short sequences, "
       "fewer documents give a smaller index of samples, and a faster start of the first run.")
      .at_least(3)
      .at_most(MockSource::documents_of_megatron)
      .when_changed(options::Change::order)
      .no_flag("Megatron-LM's mock data has 100000 documents");
}

std::unique_ptr<data::DataSplits> make_mock(const MockOptions& o, data::DataParts parts) {
  if (!parts.eod) parts.eod = static_cast<std::int32_t>(parts.vocab_size - 1);
  const auto source = std::make_shared<MockSource>(parts.vocab_size, *parts.eod, o.mock_documents);
  GptSplits::Options options;
  options.documents = DocumentOptions::of(o);
  options.cache_folder = o.data_cache_path.value_or("");
  const GptSplits splits(GptSplits::with(std::move(options), parts));
  auto [train, valid, test] = splits.of_mock(source, GptSplits::wanted(parts.asked));
  return std::make_unique<data::DataSplits>(data::DataSplits{std::move(train), std::move(valid), std::move(test)});
}

}  // namespace

void register_mock(data::DatasetRegistry& registry) {
  registry.add("mock", make_mock, "Synthetic counting sequences, the same in every run; reads no file.",
               {"MockGPTDataset"});
}

}  // namespace tessera::gpt
