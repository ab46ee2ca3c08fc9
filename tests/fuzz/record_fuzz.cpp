// Records of conversations with images. A value as Python reads it is written so that it reads as the same again, and
// is one that another library accepts or one of those that only Python takes. A record is refused with a ConfigError,
// or has an image or video for each marker.
#include <cstdlib>
#include <string>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/files/python_value.h"
#include "framework/multimodal/record.h"

namespace {

using namespace tessera;

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_python(std::string_view words, std::string& written) {
  files::PythonValue value;
  try {
    value = files::read_python_value(words);
  } catch (const ConfigError&) {
    return false;
  }
  try {
    files::append_python_value(value, written);
  } catch (const ConfigError&) {  // half a surrogate pair
    return true;
  }
  std::string again;
  files::append_python_value(files::read_python_value(written), again);
  require(again == written);
  return true;
}

void read_as_record(const Json& value) {
  multimodal::RecordNames names;
  names.videos = "videos";
  names.system_role = "system";
  try {
    std::string why;
    auto record = multimodal::read_record(value, names, why);
    if (!record) return;
    const std::vector<data::PatchGrid> grids(record->media.size(), {1, 2, 4});
    multimodal::replace_markers(record->conversation, grids, {{}, "i", "v", "s", "e"}, 2);
  } catch (const ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view words(reinterpret_cast<const char*>(data), size);
  std::string written;
  const bool python = is_python(words, written);
  const auto value = parse_json(words);
  if (value.is_structured() && !words.starts_with("\xEF\xBB\xBF")) require(python);
  read_as_record(value);
  return 0;
}
