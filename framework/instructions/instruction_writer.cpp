#include "framework/instructions/instruction_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/start_threads.h"
#include "framework/files/input_stream.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/instructions/instruction_encoding.h"
#include "framework/instructions/instruction_rows.h"
#include "framework/tokenizers/token_origin.h"

namespace tessera::instructions {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t most_reasons = 5, rows_of_batch = 1024, bytes_of_batch = std::size_t{16} << 20U;

using Keys = std::vector<std::string>;

Keys keys_of(bool pairs) {
  if (pairs) return {"chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"};
  return {"input_ids", "attention_mask", "labels"};
}

bool has_label(const Ids& labels) {
  // The label of the first token is that of no other token.
  const auto learned = [](std::int32_t label) { return label != ignored_label; };
  return !labels.empty() && std::any_of(labels.begin() + 1, labels.end(), learned);
}

// A pair of files for each key. Labels are negative, so the tokens are int32 whatever the vocabulary.
class Files {
 public:
  Files(const std::string& prefix, Keys keys) : prefix_(prefix), keys_(std::move(keys)) {
    for (const auto& key : keys_)
      files_.push_back(std::make_unique<indexed::IndexedDatasetBuilder>(name(prefix, key), indexed::TokenType::int32));
  }

  static std::vector<std::filesystem::path> all(const std::string& prefix, const Keys& keys) {
    std::vector<std::filesystem::path> files;
    for (const auto& key : keys)
      for (auto& file : indexed::IndexedDatasetBuilder::files(name(prefix, key))) files.push_back(std::move(file));
    return files;
  }
  // A sequence for each key.
  void add(const std::vector<const Ids*>& sequences) {
    bool learns = true;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (keys_[i].ends_with("labels")) learns = learns && has_label(*sequences[i]);
      files_[i]->add_sequence(*sequences[i]);
    }
    without_label_ += learns ? 0 : 1;
  }
  void end_document() {
    for (const auto& one : files_) one->end_document();
  }
  // All are complete before the first gets its name.
  void finish(const tokenizers::Tokenizer& tokenizer) {
    for (const auto& one : files_) one->seal();
    for (const auto& one : files_) one->require_own_files();
    for (std::size_t i = 0; i < files_.size(); ++i) {
      files_[i]->publish();
      if (keys_[i].ends_with("input_ids")) tokenizers::write_origin(name(prefix_, keys_[i]), tokenizer);
    }
  }
  std::int64_t samples() const { return files_[0]->sequences(); }
  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (keys_[i].ends_with("input_ids")) sum += files_[i]->tokens();
    return sum;
  }
  std::int64_t without_label() const { return without_label_; }

 private:
  static std::string name(const std::string& prefix, const std::string& key) {
    return text(prefix, "_packed_", key, "_document");
  }

  std::string prefix_;
  Keys keys_;
  std::vector<std::unique_ptr<indexed::IndexedDatasetBuilder>> files_;
  std::int64_t without_label_ = 0;
};

// Rows that wait to be packed.
class Packer {
 public:
  Packer(const InstructionWriteRequest& request, const InstructionTokens& tokens)
      : length_(request.seq_length.value_or(0)), neat_(request.neat_pack), pad_(tokens.pad) {}

  // False if the row has not as many labels as tokens.
  bool add(const EncodedConversation& row) {
    const auto most = static_cast<std::size_t>(length_ - 1);
    const auto count = std::min(row.input_ids.size(), most);
    if (std::min(row.labels.size(), most) != count) return false;
    by_length_[static_cast<std::int64_t>(count)].push_back(ids_.size());
    const auto end = static_cast<std::ptrdiff_t>(count);
    ids_.insert(ids_.end(), row.input_ids.begin(), row.input_ids.begin() + end);
    labels_.insert(labels_.end(), row.labels.begin(), row.labels.begin() + end);
    return true;
  }

  // The longest row that still fits comes next; of equally long ones the last.
  void write(Files& files) {
    Ids ids, mask, labels;
    while (!by_length_.empty()) {
      ids.clear();
      mask.clear();
      labels.clear();
      auto left = length_ - 1;  // as there, one token is always padding
      for (std::int32_t part = 1;; ++part) {
        auto fits = by_length_.upper_bound(left);
        if (fits == by_length_.begin()) break;
        --fits;
        const auto begin = static_cast<std::ptrdiff_t>(fits->second.back()), end = begin + fits->first;
        left -= fits->first;
        fits->second.pop_back();
        if (fits->second.empty()) by_length_.erase(fits);
        ids.insert(ids.end(), ids_.begin() + begin, ids_.begin() + end);
        labels.insert(labels.end(), labels_.begin() + begin, labels_.begin() + end);
        mask.resize(ids.size(), neat_ ? part : 1);
      }
      const auto whole = static_cast<std::size_t>(length_);
      ids.resize(whole, pad_);
      mask.resize(whole, neat_ ? 0 : 1);
      labels.resize(whole, ignored_label);
      files.add({&ids, &mask, &labels});
      files.end_document();
    }
  }

 private:
  std::int64_t length_;
  bool neat_;
  std::int32_t pad_;
  Ids ids_, labels_;                                            // of all rows
  std::map<std::int64_t, std::vector<std::size_t>> by_length_;  // where the rows begin
};

struct Outcome {
  enum class Kind : std::uint8_t { encoded, left_out, failed };
  Kind kind = Kind::encoded;
  bool is_emptied = false;  // Conversation::is_emptied
  std::string why;
  EncodedConversation encoded, rejected;  // of a pair `encoded` is the chosen one
};

class InstructionWriteRun {
 public:
  InstructionWriteRun(const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request)
      : tokenizer_(tokenizer),
        request_(request),
        handler_(request.handler_name, request.map_keys),
        encoding_{prompt_template(request.prompt_type, request.prompt_type_path),
                  request.seq_length,
                  request.neat_pack,
                  request.append_eod,
                  request.enable_thinking,
                  request.train_on_prompt,
                  request.mask_history},
        tokens_(tokenizer, encoding_.prompt_template),
        rows_(request.inputs, handler_.columns()),
        packer_(request, tokens_) {
    for (int i = 0; i < request.workers; ++i) {
      encoders_.push_back(std::make_unique<ConversationEncoder>(tokenizer, encoding_, tokens_));
      seen_.emplace_back(handler_.columns().size());
    }
    std::vector<std::filesystem::path> inputs;
    for (const auto& name : files::expand_patterns(request.inputs))
      if (name != "-") inputs.emplace_back(name);
    const auto keys = keys_of(handler_.makes_pairs());
    refuse_overwriting(inputs, Files::all(request.output_prefix, keys));
    files_ = std::make_unique<Files>(request.output_prefix, keys);
  }

  InstructionWriteResult operator()(const std::function<void(const preprocessing::PreprocessProgress&)>& progress) {
    auto& total = result_.total;
    total.all_bytes = rows_.size();
    if (progress) progress(total);
    while (read_batch()) {
      encode_batch();
      for (std::size_t i = 0; i < batch_.size(); ++i) take(batch_[i], outcomes_[i]);
      total.bytes = rows_.position();
      total.documents = result_.rows;
      if (progress) progress(total);
    }
    check_columns();
    if (kept_ == 0)
      throw ConfigError(text("no row of ", request_.inputs.front(), " can be used (", result_.rows, " rows, ",
                             result_.left_out, " without an answer or with wrong roles, ", total.skipped, " skipped)",
                             result_.reasons.empty() ? "" : "; the first: " + result_.reasons.front()));
    if (request_.pack) packer_.write(*files_);
    result_.samples = files_->samples();
    result_.without_label = files_->without_label();
    result_.tokens = total.tokens = files_->tokens();
    files_->finish(tokenizer_);
    return result_;
  }

 private:
  bool read_batch() {
    batch_.clear();
    std::size_t bytes = 0, most = rows_of_batch;
    if (request_.max_rows)
      most = std::min<std::size_t>(most, static_cast<std::size_t>(*request_.max_rows - result_.rows));
    for (InstructionRows::Row row; batch_.size() < most && bytes < bytes_of_batch && rows_.next(row);) {
      bytes += row.json.size();
      batch_.push_back(std::move(row));
    }
    return !batch_.empty();
  }

  void encode_batch() {
    outcomes_.assign(batch_.size(), {});
    const auto workers = encoders_.size();
    std::vector<std::thread> threads;
    start_threads(
        threads, workers - 1, "encoding of rows", "--workers", [this](std::size_t w) { encode_rows(w + 1); }, [] {});
    encode_rows(0);
    for (auto& thread : threads) thread.join();
  }

  // Each `workers`-th row.
  void encode_rows(std::size_t worker) {
    for (auto i = worker; i < batch_.size(); i += encoders_.size()) {
      auto& out = outcomes_[i];
      try {
        const auto conversation = handler_(batch_[i].json, seen_[worker], out.why);
        out.is_emptied = conversation && conversation->is_emptied;
        if (!conversation)
          out.kind = Outcome::Kind::left_out;
        else if (handler_.makes_pairs())
          encoders_[worker]->encode_pair(*conversation, out.encoded, out.rejected);
        else
          encoders_[worker]->encode(*conversation, out.encoded);
      } catch (const std::exception& error) {
        out.kind = Outcome::Kind::failed;
        out.why = error.what();
      }
    }
  }

  void take(const InstructionRows::Row& row, const Outcome& out) {
    if (++result_.rows == 1) first_ = rows_.place(row);
    if (out.kind == Outcome::Kind::failed && !request_.skip_bad)
      throw ConfigError(text(rows_.place(row), ": ", out.why));
    if (out.kind != Outcome::Kind::encoded) {
      ++(out.kind == Outcome::Kind::failed ? result_.total.skipped : result_.left_out);
      if (result_.reasons.size() < most_reasons) result_.reasons.push_back(text(rows_.place(row), ": ", out.why));
      return;
    }
    ++kept_;
    if (out.is_emptied && result_.emptied++ == 0) result_.first_emptied = rows_.place(row);
    if (handler_.makes_pairs())
      take_pair(row, out);
    else
      take_conversation(row, out.encoded);
  }

  // A row that is too long leaves an empty document, as there.
  void add(const std::vector<const Ids*>& sequences) {
    const bool is_long =
        std::any_of(sequences.begin(), sequences.end(), [this](const Ids* one) { return reaches(*one); });
    result_.too_long += is_long ? 1 : 0;
    if (!is_long) files_->add(sequences);
    files_->end_document();
  }

  bool reaches(const Ids& ids) const {
    return request_.seq_length && static_cast<std::int64_t>(ids.size()) >= *request_.seq_length;
  }

  void take_pair(const InstructionRows::Row& row, const Outcome& out) {
    result_.total.tokens += static_cast<std::int64_t>(out.encoded.input_ids.size() + out.rejected.input_ids.size());
    if (out.encoded.input_ids == out.rejected.input_ids && result_.equal_pairs++ == 0)
      result_.first_equal_pair = rows_.place(row);
    add({&out.encoded.input_ids, &out.encoded.labels, &out.rejected.input_ids, &out.rejected.labels});
  }

  void count_cut(const InstructionRows::Row& row, bool is_cut) {
    if (!is_cut || result_.cut++ > 0) return;
    result_.cut_to = request_.seq_length.value_or(longest_without_seq_length);
    result_.first_cut = rows_.place(row);
  }

  void take_conversation(const InstructionRows::Row& row, const EncodedConversation& encoded) {
    const auto& ids = encoded.input_ids;
    result_.total.tokens += static_cast<std::int64_t>(ids.size());
    if (request_.pack) {
      const bool is_long = reaches(ids);
      result_.too_long += is_long ? 1 : 0;
      const bool is_kept = !is_long || request_.neat_pack;
      if (is_kept) count_cut(row, encoded.cut || is_long);
      if (is_kept && !packer_.add(encoded))
        throw ConfigError(
            text(rows_.place(row),
                 ": a prompt is cut to nothing, so that labels and tokens differ in number; give a larger "
                 "--seq-length, or remove the row"));
      return;
    }
    // Labels can be more where efficient_eos meets a prompt that is cut to nothing.
    const Ids mask(ids.size(), 1);
    count_cut(row, encoded.cut && !reaches(ids));
    add({&ids, &mask, &encoded.labels});
  }

  void check_columns() const {
    for (std::size_t i = 0; i < handler_.columns().size(); ++i) {
      const auto has = [i](const std::vector<bool>& seen) { return seen[i]; };
      if (result_.rows > 0 && std::none_of(seen_.begin(), seen_.end(), has))
        throw ConfigError(text(first_, ": neither this row nor another has the key '", handler_.columns()[i],
                               "'; name the keys of the data with --map-keys, null for none"));
    }
  }

  const tokenizers::Tokenizer& tokenizer_;
  const InstructionWriteRequest& request_;
  InstructionHandler handler_;
  InstructionEncoding encoding_;
  InstructionTokens tokens_;
  InstructionRows rows_;
  Packer packer_;
  std::unique_ptr<Files> files_;
  std::vector<std::unique_ptr<ConversationEncoder>> encoders_;
  std::vector<std::vector<bool>> seen_;  // of each encoder
  std::vector<InstructionRows::Row> batch_;
  std::vector<Outcome> outcomes_;
  InstructionWriteResult result_;
  std::string first_;  // row
  std::int64_t kept_ = 0;
};

void check(const InstructionWriteRequest& request) {
  if (request.inputs.empty()) throw ConfigError("preprocess: --input names no file");
  if (request.prompt_type.empty())
    throw ConfigError(text("--handler-name ", request.handler_name, " needs --prompt-type, for example qwen"));
  const bool pairs = request.handler_name.ends_with("PairwiseHandler");
  for (const auto& [flag, given] :
       {std::pair("--pack", request.pack), std::pair("--append-eod", request.append_eod),
        std::pair("--train-on-prompt", request.train_on_prompt), std::pair("--mask-history", request.mask_history)})
    if (pairs && given)
      throw ConfigError(text(flag, " does not apply to pairs (--handler-name ", request.handler_name, "); remove it"));
  if (request.train_on_prompt && request.mask_history)
    throw ConfigError("--train-on-prompt and --mask-history exclude each other; remove one of them");
  if (request.neat_pack && !request.pack) throw ConfigError("--neat-pack needs --pack");
  if (request.pack && !request.seq_length) throw ConfigError("--pack needs --seq-length");
  const std::int64_t least = request.pack ? 2 : 1;
  if (request.seq_length && *request.seq_length < least)
    throw ConfigError(text("--seq-length: ", *request.seq_length, " is too small; expected ", least, " at least"));
  must(request.workers >= 1, "there is a worker at least");
}

}  // namespace

InstructionWriteResult write_instructions(
    const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request,
    const std::function<void(const preprocessing::PreprocessProgress&)>& progress) {
  check(request);
  return InstructionWriteRun(tokenizer, request)(progress);
}

}  // namespace tessera::instructions
