#include "framework/instructions/tokens_of_texts.h"

#include <unistd.h>

#include <system_error>

#include "framework/base/build_lock.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/sha256.h"
#include "framework/base/system_call.h"
#include "framework/files/input_stream.h"
#include "framework/tokenizers/token_origin.h"

namespace tessera::instructions {
namespace {

namespace fs = std::filesystem;

constexpr const char* unfinished = ".unfinished";
// Raised when the program makes other tokens of the same request.
constexpr int version = 2;

// Name, size and time of a file that is read.
Json describe_file(const std::string& name) {
  std::error_code failed;
  const auto path = fs::absolute(name);
  const auto size = fs::file_size(path, failed);
  if (failed) throw ConfigError(text(name, ": cannot be read: ", failed.message(), "; give the file of the texts"));
  return Json::array({path.string(), size, fs::last_write_time(path).time_since_epoch().count()});
}

Json describe_tokenizer(const tokenizers::Tokenizer& tokenizer) {
  Json tokens = Json::array();
  for (const auto& one : tokenizer.named_tokens()) tokens.push_back(Json::array({one.name, one.text, one.id}));
  Json files = Json::array();
  for (const auto& file : tokenizer.files()) files.push_back(describe_file(file.path));
  Json options = Json::array();  // such as split_special_tokens, which the text of the origin does not show
  const auto identity = tokenizer.identity();
  for (const auto& one : identity.options) options.push_back(Json::array({one.first, one.second}));
  return {{"origin", tokenizers::origin_text(tokenizer)}, {"tokens", tokens}, {"files", files}, {"options", options}};
}

std::string describe(const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request,
                     const std::vector<std::string>& inputs) {
  Json files = Json::array();
  for (const auto& name : inputs) files.push_back(describe_file(name));
  const Json all = {{"version", version},
                    {"inputs", files},
                    {"handler_name", request.handler_name},
                    {"map_keys", request.map_keys},
                    {"prompt_type", request.prompt_type},
                    {"seq_length", request.seq_length.value_or(0)},
                    {"max_rows", request.max_rows.value_or(0)},
                    {"pack", request.pack},
                    {"neat_pack", request.neat_pack},
                    {"train_on_prompt", request.train_on_prompt},
                    {"mask_history", request.mask_history},
                    {"enable_thinking", request.enable_thinking ? Json(*request.enable_thinking) : Json(nullptr)},
                    {"tokenizer", describe_tokenizer(tokenizer)}};
  return all.dump(2) + "\n";
}

std::string counts_of(const InstructionWriteResult& made) {
  auto words = text(made.rows, " rows became ", made.samples, " samples of ", made.tokens, " tokens");
  if (made.left_out > 0)
    words += text("; ", made.left_out,
                  " rows without an answer or with wrong roles were left out, the first: ", made.reasons.front());
  if (made.emptied > 0)
    words +=
        text("; ", made.emptied, " rows have several answers, of which none is used, the first: ", made.first_emptied);
  if (made.cut > 0)
    words += text("; ", made.cut, " rows were cut to ", made.cut_to, " tokens, the first at ", made.first_cut);
  return words;
}

// Under the lock.
void write_tokens(const tokenizers::Tokenizer& tokenizer, InstructionWriteRequest request, const fs::path& out,
                  const std::string& description, const data::TellLine& tell) {
  const auto begin = out.filename().string() + ".";
  for (const auto& left : list_folder(out.parent_path()))  // by processes that were killed
    if (left.filename().string().starts_with(begin) && left.extension() == unfinished) fs::remove_all(left);
  // A name of its own: on file systems without locks several processes write at once.
  const fs::path own = text(out.string(), ".", host_name(), ".", ::getpid(), unfinished);
  fs::create_directories(own);
  if (tell) tell(text("making token files of ", request.inputs.front(), " in ", out.string()));
  request.output_prefix = (own / out.filename()).string();
  try {
    const auto made = write_instructions(tokenizer, request);
    write_file_atomic(own / "description.json", description);
    if (tell) tell(counts_of(made));
    std::error_code taken;
    fs::rename(own, out, taken);
    if (taken && !fs::exists(out)) throw IoError(text(out.string(), ": cannot be made: ", taken.message()));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(own, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove_all(own, ignored);
}

}  // namespace

fs::path folder_of_tokens(const InstructionWriteRequest& request) {
  return fs::path(request.inputs.at(0)).parent_path() / "cache" / "instructions";
}

std::string tokens_of_texts(const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request,
                            const fs::path& folder, const data::TellLine& tell) {
  auto whole = request;
  whole.inputs = files::expand_patterns(request.inputs);
  for (const auto& name : whole.inputs)
    if (name == "-")
      throw ConfigError("data_path is '-', but a run cannot read its texts from standard input; give files");
  const auto description = describe(tokenizer, whole, whole.inputs);
  const auto out = folder / sha256(description).substr(0, 16);
  const auto prefix = (out / out.filename()).string();
  if (fs::is_directory(out)) return prefix;
  std::error_code failed;
  fs::create_directories(folder, failed);
  const auto lock = [&] {
    try {
      return BuildLock::take(out.string() + ".lock");
    } catch (const IoError& error) {
      throw ConfigError(text(error.what(), "; set data_cache_path to a folder for the token files of data_path"));
    }
  }();
  if (!fs::is_directory(out)) write_tokens(tokenizer, whole, out, description, tell);
  return prefix;
}

}  // namespace tessera::instructions
