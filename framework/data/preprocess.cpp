#include "framework/data/preprocess.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

#include "framework/data/indexed_dataset.h"

namespace tessera {
namespace {

constexpr std::size_t documents_of_block = 64, bytes_of_round = std::size_t{16} << 20U;

// Documents that one thread encodes at a time, and what became of them, key by key.
struct Block {
  std::size_t first = 0, last = 0;  // in the documents of the round
  struct Key {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> ends;      // of each sequence, in ids
    std::vector<std::size_t> documents;  // sequences so far, at the end of each document
  };
  std::vector<Key> keys;
  std::exception_ptr failed;
};

class Work {
 public:
  Work(const Tokenizer& tokenizer, const PreprocessRequest& request, std::vector<std::string> keys)
      : tokenizer_(tokenizer), append_eod_(request.append_eod), keys_(std::move(keys)) {
    for (int w = 0; w < std::max(1, request.workers); ++w) encoders_.push_back(tokenizer.encoder());
  }

  // Encode all documents of a round; blocks come out in order.
  std::vector<Block> encode(const TextFile& file, const std::vector<RawDocument>& documents) {
    std::vector<Block> blocks((documents.size() + documents_of_block - 1) / documents_of_block);
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    const auto run = [&](Tokenizer::Encoder& encoder) {
      for (auto b = next++; b < blocks.size() && !failed; b = next++) {
        auto& block = blocks[b];
        block.first = b * documents_of_block;
        block.last = std::min(block.first + documents_of_block, documents.size());
        try {
          fill(block, file, documents, encoder);
        } catch (...) {
          block.failed = std::current_exception();
          failed = true;
        }
      }
    };
    std::vector<std::thread> crew;
    for (std::size_t w = 1; w < encoders_.size() && w < blocks.size(); ++w)
      crew.emplace_back([&, w] { run(*encoders_[w]); });
    run(*encoders_[0]);
    for (auto& thread : crew) thread.join();
    for (const auto& block : blocks)  // the first in the file, whoever was first in time
      if (block.failed) std::rethrow_exception(block.failed);
    return blocks;
  }

 private:
  void fill(Block& block, const TextFile& file, const std::vector<RawDocument>& documents,
            Tokenizer::Encoder& encoder) const {
    block.keys.resize(keys_.size());
    std::vector<std::vector<std::string>> texts;
    for (auto d = block.first; d < block.last; ++d) {
      file.texts(documents[d], keys_, texts);
      try {
        for (std::size_t k = 0; k < texts.size(); ++k) add(block.keys[k], texts[k], encoder);
      } catch (const ConfigError& error) {
        throw ConfigError(text(file.name(), ":", documents[d].line, ": ", error.what()));
      }
    }
  }

  void add(Block::Key& key, const std::vector<std::string>& sentences, Tokenizer::Encoder& encoder) const {
    const auto before = key.ends.size();
    for (const auto& sentence : sentences) {
      const auto start = key.ids.size();
      encoder.encode(sentence, key.ids);
      if (key.ids.size() > start) key.ends.push_back(static_cast<std::int64_t>(key.ids.size()));
    }
    if (append_eod_ && key.ends.size() > before) {
      key.ids.push_back(tokenizer_.eod());
      ++key.ends.back();
    }
    key.documents.push_back(key.ends.size());
  }

  const Tokenizer& tokenizer_;
  bool append_eod_;
  std::vector<std::string> keys_;
  std::vector<std::unique_ptr<Tokenizer::Encoder>> encoders_;
};

void store(const Block::Key& key, IndexedDatasetBuilder& builder) {
  std::size_t sequence = 0;
  std::int64_t start = 0;
  for (const auto until : key.documents) {
    for (; sequence < until; ++sequence) {
      const auto end = key.ends[sequence];
      builder.add_sequence(
          std::span(key.ids).subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start)));
      start = end;
    }
    builder.end_document();
  }
}

bool is_json(const PreprocessRequest& request) {
  std::size_t json = 0;
  for (const auto& name : request.inputs)
    json += request.format.value_or(format_by_name(name)) == TextFormat::json_lines ? 1 : 0;
  if (json != 0 && json != request.inputs.size())
    throw ConfigError(
        "preprocess: by their names some inputs are JSON lines and some plain text; say with --format what all are");
  return json != 0;
}

void check_outputs(const Tokenizer& tokenizer, const PreprocessRequest& request, const std::vector<TokenFiles>& made) {
  std::vector<std::filesystem::path> inputs(request.inputs.begin(), request.inputs.end()), outputs;
  for (const auto& file : tokenizer.files()) inputs.emplace_back(file.path);
  for (const auto& one : made)
    for (const auto& file : IndexedDatasetBuilder::files(one.prefix)) outputs.push_back(file);
  refuse_overwriting(inputs, outputs);
}

}  // namespace

std::vector<TokenFiles> preprocess(const Tokenizer& tokenizer, const PreprocessRequest& request,
                                   const std::function<void(const PreprocessProgress&)>& progress) {
  std::vector<TextFile> files;
  std::int64_t all = 0, before = 0;
  for (const auto& name : request.inputs)
    all += files.emplace_back(name, request.format.value_or(format_by_name(name))).size();

  std::vector<TokenFiles> made;
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders;
  const auto keys = is_json(request) ? request.json_keys : std::vector<std::string>{""};  // plain text has no keys
  for (const auto& key : keys)
    made.push_back({key.empty() ? request.output_prefix : text(request.output_prefix, "_", key, "_document")});
  check_outputs(tokenizer, request, made);
  for (const auto& one : made)
    builders.push_back(std::make_unique<IndexedDatasetBuilder>(one.prefix, token_type_for(tokenizer.vocab_size())));
  Work work(tokenizer, request, keys);
  std::vector<RawDocument> documents;
  PreprocessProgress told{0, all, 0};
  const auto every = static_cast<std::size_t>(std::max<std::int64_t>(request.report_every, 0));
  for (auto& file : files) {
    for (bool more = true; more;) {
      const auto done = static_cast<std::size_t>(told.documents);
      const auto room = every == 0 ? std::numeric_limits<std::size_t>::max() : every - done % every;
      documents.clear();
      RawDocument document;
      for (std::size_t bytes = 0; bytes < bytes_of_round && documents.size() < room && (more = file.next(document));
           bytes += document.bytes.size() + 1)
        documents.push_back(document);
      for (const auto& block : work.encode(file, documents))
        for (std::size_t k = 0; k < builders.size(); ++k) store(block.keys[k], *builders[k]);
      for (auto& one : made) one.documents += static_cast<std::int64_t>(documents.size());
      told.documents += static_cast<std::int64_t>(documents.size());
      told.bytes = before + file.position();
      if (progress) progress(told);
    }
    before += file.size();
  }
  for (std::size_t k = 0; k < builders.size(); ++k) {
    builders[k]->finish();
    made[k].sequences = builders[k]->sequences();
    made[k].tokens = builders[k]->tokens();
  }
  return made;
}

}  // namespace tessera
