#include "framework/convert/launch.h"

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/convert/model_args.h"

namespace tessera {
namespace {

bool ends_with(const std::string& words, const std::string& end) {
  return words.size() >= end.size() && words.compare(words.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

LaunchReading read_launches(const std::string& file, const ScriptInputs& inputs, const Mappings& mappings,
                            Report& report) {
  (void)inputs, (void)mappings;
  try {
    if (ends_with(file, ".yaml") || ends_with(file, ".yml")) return read_model_args(read_file(file), file, report);
  } catch (const IoError& error) {
    report.problem({file, 0, "", 0}, "", error.what());
    return {};
  }
  report.problem({file, 0, "", 0}, "", "launch scripts are not read yet");
  return {};
}

}  // namespace tessera
