#include "framework/preprocessing/preprocess.h"

#include <algorithm>
#include <memory>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/preprocessing/encoding_pipeline.h"
#include "framework/preprocessing/preprocess_plan.h"
#include "framework/tokenizers/token_origin.h"

namespace tessera::preprocessing {
namespace {

using Progress = std::function<void(const PreprocessProgress&)>;

constexpr std::size_t most_skipped_told = 5;

Json to_json(const TokenFiles& files) { return {files.prefix, files.documents, files.sequences, files.tokens}; }
std::int64_t whole(const Json& list, std::size_t index) { return list.at(index).get<std::int64_t>(); }
TokenFiles files_from(const Json& json) {
  return {json.at(0).string(), whole(json, 1), whole(json, 2), whole(json, 3)};
}
Json to_json(const PreprocessProgress& p) { return {p.bytes, p.all_bytes, p.documents, p.tokens, p.skipped}; }
PreprocessProgress progress_from(const Json& json) {
  return {.bytes = whole(json, 0),
          .all_bytes = whole(json, 1),
          .documents = whole(json, 2),
          .tokens = whole(json, 3),
          .skipped = whole(json, 4)};
}

class PreprocessRun {
 public:
  PreprocessRun(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request)
      : tokenizer_(tokenizer),
        request_(request),
        plan_(tokenizer, request),
        identity_(plan_.identity(tokenizer)),
        type_(indexed::token_type_for(tokenizer.vocab_size())) {
    result_.notes = plan_.notes;
  }

  PreprocessResult operator()(const Progress& progress) {
    if (continue_or_start()) {
      try {
        encode(progress);
        complete();
      } catch (const Interrupted& error) {
        keep_for_resume();
        throw Interrupted(text(error.what(), saved_ ? kept_text("") : std::string("; nothing is kept")));
      } catch (const IoError& error) {
        keep_for_resume();
        throw IoError(text(error.what(), saved_ ? kept_text(" when the cause is mended")
                                                : std::string("; nothing is kept, mend the cause and start again")));
      } catch (const ConfigError& error) {
        if (!saved_) throw;
        for (auto& builder : builders_) builder->keep();
        throw ConfigError(text(error.what(), kept_text(" when the cause is mended (with --on-error skip if it is a "
                                                       "document that may be left out)")));
      }
    }
    publish();
    return result_;
  }

 private:
  // False: all is encoded, and only names are missing.
  bool continue_or_start();
  bool take_state(const Json& state);
  void encode(const Progress& progress);
  void take(const EncodingPipeline::Item& item);
  void take_bad(const EncodingPipeline::Item& item);
  void write_state(const Json& more);
  void save_point();
  void complete();
  void require_own_files() const;
  void publish();
  void keep_for_resume();
  std::string kept_text(const std::string& when) const;

  const tokenizers::Tokenizer& tokenizer_;
  const PreprocessRequest& request_;
  PreprocessPlan plan_;
  Json identity_;
  indexed::TokenType type_;
  std::vector<std::unique_ptr<indexed::IndexedDatasetBuilder>> builders_, merged_;
  std::vector<indexed::IndexedDatasetBuilder::State> reached_;  // of each builder, with position_ and result_
  TextPosition position_;
  std::int64_t lines_ = 0;  // of the input at position_
  PreprocessResult result_;
  bool saved_ = false;  // the state file is there
};

bool PreprocessRun::continue_or_start() {
  const bool there = std::filesystem::exists(plan_.state_file);
  if (request_.resume && there) {
    const auto state = parse_json(read_file(plan_.state_file));
    try {
      return take_state(state);
    } catch (const JsonError&) {
      throw ConfigError(
          text("--resume: '", plan_.state_file, "' is damaged or of another version; start again without --resume"));
    }
  }
  if (request_.resume)
    result_.notes.push_back(
        text("nothing to resume: there is no '", plan_.state_file, "', so it starts from the beginning"));
  for (const auto* prefixes : {&plan_.prefixes, &plan_.merged})
    for (const auto& prefix : *prefixes) indexed::IndexedDatasetBuilder::refuse_if_open(prefix);
  delete_all(plan_.state_file);  // before the files that it describes; no other process is using it
  for (const auto& prefix : plan_.prefixes) {
    builders_.push_back(std::make_unique<indexed::IndexedDatasetBuilder>(prefix, type_));
    reached_.push_back(builders_.back()->state());
  }
  return true;
}

bool PreprocessRun::take_state(const Json& state) {
  for (const auto& [what, value] : state.at("request").items())
    if (identity_.value(what, Json()) != value)
      throw ConfigError(text("--resume: ", what, " differs from the interrupted run (",
                             what == "--input" ? "a file has another size or time, or another name" : "see there",
                             "); give the same, or start again without --resume"));
  saved_ = true;
  result_.total = progress_from(state.at("total"));
  result_.skipped = state.at("skipped").get<std::vector<std::string>>();
  result_.resumed_documents = result_.total.documents;
  if (state.at("complete").boolean()) {
    for (const auto& one : state.at("files")) result_.files.push_back(files_from(one));
    result_.notes.push_back("the interrupted run had encoded everything; only names were missing");
    return false;
  }
  const auto& at = state.at("position");
  at.at(0).get_to(position_.input);
  at.at(1).get_to(position_.offset);
  at.at(2).get_to(position_.lines);
  at.at(3).get_to(position_.checksum);
  at.at(4).get_to(lines_);
  for (const auto& one : state.at("builders")) reached_.push_back({whole(one, 0), whole(one, 1), whole(one, 2)});
  if (reached_.size() != plan_.prefixes.size()) throw ConfigError("--resume: the state file has other outputs");
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    builders_.push_back(std::make_unique<indexed::IndexedDatasetBuilder>(plan_.prefixes[i], type_, reached_[i]));
    builders_.back()->keep();  // an earlier point is worth more than nothing, whatever happens now
  }
  result_.notes.push_back(text("resumed behind ", result_.resumed_documents, " documents"));
  return true;
}

void PreprocessRun::encode(const Progress& progress) {
  const bool counts =
      plan_.encoding.dealing.rule == Dealing::Rule::turns || plan_.encoding.dealing.rule == Dealing::Rule::blocks;
  ChunkReader reader(plan_.inputs, request_.chunk_bytes, counts);
  if (saved_) reader.go_to(position_);
  auto& total = result_.total;
  total.all_bytes = 0;
  bool known = true;
  for (const auto& input : plan_.inputs) {
    const auto size = files::size_of_input(input.name);
    known = known && !files::is_read_once(input.name);
    total.all_bytes += size;
  }
  if (!known) total.all_bytes = 0;
  EncodingPipeline pipeline(reader, tokenizer_, plan_.encoding, request_.workers);
  std::int64_t since_point = 0;
  if (progress) progress(total);
  while (const auto* item = pipeline.next()) {
    if (item->chunk.input != position_.input) lines_ = 0;
    if (!item->encoded.bad.empty()) take_bad(*item);
    take(*item);
    since_point += static_cast<std::int64_t>(item->chunk.bytes.size());
    if (since_point >= request_.resume_point_bytes) {
      save_point();
      since_point = 0;
    }
    if (progress) progress(total);
  }
}

void PreprocessRun::take_bad(const EncodingPipeline::Item& item) {
  const auto& name = plan_.inputs[static_cast<std::size_t>(item.chunk.input)].name;
  const auto told = [&](const EncodedChunk::Bad& bad) {
    return text(name == "-" ? "standard input" : name, ":", lines_ + bad.line + 1, ": ", bad.what);
  };
  if (item.encoded.skipped == 0) throw ConfigError(told(item.encoded.bad.front()));
  for (const auto& bad : item.encoded.bad)
    if (result_.skipped.size() < most_skipped_told) result_.skipped.push_back(told(bad));
}

void PreprocessRun::take(const EncodingPipeline::Item& item) {
  auto& total = result_.total;
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const auto& output = item.encoded.outputs[i];
    builders_[i]->add_documents(output.tokens, output.lengths, output.sequences);
    builders_[i]->flush();
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    total.tokens += builders_[i]->tokens() - reached_[i].tokens;
    reached_[i] = builders_[i]->state();
  }
  position_ = item.chunk.end;
  lines_ += item.encoded.lines;
  total.bytes = item.chunk.stored;
  total.documents += item.encoded.documents;
  total.skipped += item.encoded.skipped;
}

void PreprocessRun::write_state(const Json& more) {
  Json state = {{"request", identity_}, {"total", to_json(result_.total)}, {"skipped", result_.skipped}};
  state.update(more);
  write_file_atomic(plan_.state_file, state.sorted().dump(1));
  saved_ = true;
}

// Everything up to position_ is on the disk before the state file speaks of it.
void PreprocessRun::save_point() {
  Json builders = Json::array();
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    builders_[i]->sync();
    builders.push_back({reached_[i].sequences, reached_[i].documents, reached_[i].tokens});
  }
  write_state({{"complete", false},
               {"position", {position_.input, position_.offset, position_.lines, position_.checksum, lines_}},
               {"builders", builders}});
}

void PreprocessRun::complete() {
  const auto keys = plan_.encoding.keys.size();
  for (std::size_t k = 0; k < plan_.merged.size(); ++k) {
    merged_.push_back(std::make_unique<indexed::IndexedDatasetBuilder>(plan_.merged[k], type_));
    for (auto i = k; i < builders_.size(); i += keys) merged_.back()->add(*builders_[i]);
  }
  Json files = Json::array();
  const auto& last = merged_.empty() ? builders_ : merged_;
  for (std::size_t k = 0; k < last.size(); ++k) {
    const auto state = last[k]->state();
    result_.files.push_back(
        {merged_.empty() ? plan_.prefixes[k] : plan_.merged[k], state.documents, state.sequences, state.tokens});
    files.push_back(to_json(result_.files.back()));
  }
  for (const auto* builders : {&builders_, &merged_})
    for (const auto& builder : *builders) builder->seal();
  require_own_files();
  write_state({{"complete", true}, {"files", files}});
  for (const auto* builders : {&builders_, &merged_})
    for (const auto& builder : *builders) builder->keep();
}

// Before the first file gets its name, and before the state file speaks of any.
void PreprocessRun::require_own_files() const {
  for (const auto* builders : {&builders_, &merged_})
    for (const auto& builder : *builders) builder->require_own_files();
}

void PreprocessRun::publish() {
  const bool is_resumed = builders_.empty();  // an earlier run sealed the files
  require_own_files();
  for (const auto* builders : {&builders_, &merged_})
    for (const auto& builder : *builders) builder->publish();
  for (const auto* prefixes : {&plan_.prefixes, &plan_.merged})
    for (const auto& prefix : *prefixes) {
      if (is_resumed) indexed::IndexedDatasetBuilder::publish(prefix);
      tokenizers::write_origin(prefix, tokenizer_);
    }
  delete_all(plan_.state_file);
}

/// Afterwards saved_ says whether --resume can continue.
void PreprocessRun::keep_for_resume() {
  merged_.clear();
  const auto is_own = [](const auto& builder) { return builder->has_own_files(); };
  if (!std::all_of(builders_.begin(), builders_.end(), is_own)) {
    saved_ = false;  // what is there is that of another process
    return;
  }
  try {
    for (std::size_t i = 0; i < builders_.size(); ++i) builders_[i]->go_back(reached_[i]);
    save_point();
  } catch (const IoError&) {
    // An earlier point, if there is one, still holds: every file is at least as long as it says.
  }
  if (!saved_) return;
  for (auto& builder : builders_) builder->keep();
}

std::string PreprocessRun::kept_text(const std::string& when) const {
  return text("; '", plan_.state_file, "' and ", plan_.prefixes.front(), ".*.unfinished",
              plan_.prefixes.size() > 1 ? " (and those of the other outputs)" : "",
              " keep what is done: repeat the command with --resume", when, ", or delete them");
}

}  // namespace

PreprocessResult preprocess(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request,
                            const Progress& progress) {
  return PreprocessRun(tokenizer, request)(progress);
}

}  // namespace tessera::preprocessing
