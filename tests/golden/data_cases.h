#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/tokenizers/tokenizer.h"
#include "tests/golden/case.h"

namespace tessera::golden {

using Json = nlohmann::json;

/// Thrown by a judge for what is not built; its message says what.
struct NotSupported {
  std::string what;
};

/// Recorded texts name files relative to the folder of the records.
class InFolder {
 public:
  explicit InFolder(const std::filesystem::path& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  std::filesystem::path before_;
};

/// One folder of records while its cases are judged.
class DataFolder {
 public:
  explicit DataFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return folder_; }
  bool has(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  Json json(const std::string& name) const;
  std::vector<Json> lines(const std::string& name) const;
  /// A folder for outputs that goes away with this object.
  const std::filesystem::path& scratch() const { return scratch_.path; }

  /// The tokenizer that flags such as {"--tokenizer-type", "NullTokenizer", ...} ask for; throws NotSupported.
  const tokenizers::Tokenizer& tokenizer(const std::map<std::string, std::string>& flags) const;
  const tokenizers::Tokenizer& gpt2() const;
  /// The tokenizer of that name in tokenizers.json.
  const tokenizers::Tokenizer& tokenizer_named(const std::string& name) const;
  /// The path in the flags of which tokenizer() made `path`.
  std::string given_path(const std::string& path) const;

  /// Judge one case: `judge` returns what differs, or nothing. Exceptions are failures with their message.
  void run(const std::string& name, const std::function<std::string()>& judge);
  std::vector<CaseResult> results;

 private:
  struct Scratch {
    Scratch();
    ~Scratch();
    std::filesystem::path path;
  };
  std::filesystem::path find_gpt2() const;
  std::pair<std::filesystem::path, std::filesystem::path> gpt2_files() const;  ///< vocabulary, merges
  std::string tokenizer_file(const std::string& flag, const std::string& given) const;
  void make_vocabulary(const std::filesystem::path& merges) const;

  std::filesystem::path folder_;
  Scratch scratch_;
  mutable std::map<std::string, std::unique_ptr<tokenizers::Tokenizer>> tokenizers_;  // by type and options
  mutable std::map<std::string, std::string> given_paths_;
};

/// A recorded command line: flags with all their values, joined by spaces; a flag alone has an empty value.
std::map<std::string, std::string> flag_map(const Json& arguments);

void judge_ids(DataFolder& data);
void judge_preprocess(DataFolder& data);
void judge_broken_input(DataFolder& data);
void judge_gptdataset(DataFolder& data);
void judge_masks(DataFolder& data);
void judge_samplers(DataFolder& data);

}  // namespace tessera::golden
