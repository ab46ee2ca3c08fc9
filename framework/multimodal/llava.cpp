#include "framework/multimodal/llava.h"

#include <filesystem>

#include "framework/base/error.h"
#include "framework/files/input_stream.h"
#include "framework/files/python_value.h"
#include "framework/files/unfinished_file.h"
#include "framework/instructions/instruction_rows.h"

namespace tessera::multimodal {
namespace {

using files::PythonValue;
using Kind = PythonValue::Kind;

constexpr std::size_t written_at_once = std::size_t{1} << 20U;

void must_be_list(const std::string& name) {
  files::refuse_read_once(name, "llava-to-mllm: the beginning of the input is read first");
  const auto stream = files::open_input(name);
  char sign = ' ';
  std::size_t read = 1;
  while (read == 1 && (sign == ' ' || sign == '\n' || sign == '\r' || sign == '\t')) read = stream->read(&sign, 1);
  if (read == 0 || sign != '[')
    throw ConfigError(text(name, ": is ", read == 0 ? "empty" : "not a JSON list",
                           "; expected a list of records with image and conversations, as llava_instruct_150k.json"));
}

// os.path.join
std::string joined_path(const std::string& folder, const std::string& name) {
  if (name.starts_with('/') || folder.empty()) return name;
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

bool exists(const std::string& path) {
  std::error_code unknown;
  return path.find('\0') == std::string::npos && std::filesystem::exists(path, unknown);
}

// The member `name` of an object `what`.
const PythonValue& member(const PythonValue& object, const char* name, const std::string& what) {
  if (object.kind != Kind::object)
    throw ConfigError(text(what, " is ", object.kind_name(), "; expected an object, correct or remove the record"));
  const auto* found = object.find(name);
  if (found == nullptr) throw ConfigError(text(what, " has no '", name, "'; correct or remove the record"));
  return *found;
}

const char* role_of(const PythonValue& from, const std::string& what) {
  if (from.is_text("human")) return "user";
  if (from.is_text("gpt")) return "assistant";
  std::string shown;
  if (!from.lone_surrogate) files::append_python_value(from, shown);
  throw ConfigError(
      text(what, " has the unknown role ", shown, "; expected \"human\" or \"gpt\", correct or remove the record"));
}

void append_turns(const PythonValue& record, std::string& out) {
  const auto& turns = member(record, "conversations", "the record");
  if (turns.kind != Kind::list)
    throw ConfigError(
        text("'conversations' is ", turns.kind_name(), "; expected a list, correct or remove the record"));
  for (std::size_t i = 0; i < turns.items.size(); ++i) {
    const auto what = text("turn ", i + 1, " of 'conversations'");
    const auto* role = role_of(member(turns.items[i], "from", what), what);
    out += i == 0 ? "{\"role\": \"" : ", {\"role\": \"";
    (out += role) += "\", \"content\": ";
    files::append_python_value(member(turns.items[i], "value", what), out);
    out += '}';
  }
}

// False if the record has an image that does not exist.
bool append_record(const PythonValue& record, const std::string& folder, std::string& out) {
  if (record.kind != Kind::object)
    throw ConfigError(text("is ", record.kind_name(), "; expected an object with image and conversations"));
  out += "{\"images\": [";
  if (const auto* image = record.find("image"); image != nullptr && !image->is_falsy()) {
    if (image->kind != Kind::text)
      throw ConfigError(text("'image' is ", image->kind_name(), "; expected the name of a file, or null for none"));
    const auto path = joined_path(folder, image->words);
    if (image->lone_surrogate || !exists(path)) return false;
    files::append_python_text(path, out);
  }
  out += "], \"messages\": [";
  append_turns(record, out);
  out += "]}";
  return true;
}

void must_be_new(const std::string& output) {
  std::error_code unknown;
  if (std::filesystem::exists(std::filesystem::symlink_status(output, unknown)))
    throw ConfigError(text(output, ": the file exists; rename or remove it, or give another --output"));
}

}  // namespace

LlavaConverted convert_llava(const LlavaRequest& request, const std::function<void(std::int64_t, std::int64_t)>& tell) {
  must_be_new(request.output);
  must_be_list(request.input);
  instructions::InstructionRows rows({request.input}, {});
  files::UnfinishedFile file(request.output);
  LlavaConverted made;
  std::string out = "[", record;
  for (instructions::InstructionRows::Row row; rows.next(row);) {
    record = made.records > 0 ? ", " : "";
    try {
      if (!append_record(files::read_python_value(row.json, row.line), request.images, record)) {
        ++made.dropped;
        continue;
      }
    } catch (const ConfigError& error) {
      throw ConfigError(text(rows.place(row), ", record ", made.records + made.dropped + 1, ": ", error.what()));
    }
    out += record;
    ++made.records;
    if (out.size() < written_at_once) continue;
    file.write(out);
    out.clear();
    if (tell) tell(rows.position(), rows.size());
  }
  file.write(out + "]");
  file.finish();
  return made;
}

}  // namespace tessera::multimodal
