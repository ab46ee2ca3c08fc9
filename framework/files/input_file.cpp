#include "framework/files/input_file.h"

namespace tessera::files {
namespace {

ConfigError unreadable(const std::string& file, const std::string& what, const IoError& error) {
  return ConfigError(text("the ", what, " '", file, "' cannot be read: ", error.what()));
}

void refuse_folder(const std::string& file, const std::string& what) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw ConfigError(text("the ", what, " '", file, "' is a folder; give a file"));
}

}  // namespace

std::string read_input(const std::string& file, const std::string& what) {
  refuse_folder(file, what);
  try {
    return read_file(file);
  } catch (const IoError& error) {
    throw unreadable(file, what, error);
  }
}

MappedFile map_input(const std::string& file, const std::string& what) {
  refuse_folder(file, what);
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
    throw ConfigError(text("the ", what, " '", file, "' is a pipe or a device, which cannot be mapped; give a file"));
  try {
    return MappedFile(file);
  } catch (const IoError& error) {
    throw unreadable(file, what, error);
  }
}

File open_input(const std::string& file, const std::string& what) {
  refuse_folder(file, what);
  try {
    return File::open(file);
  } catch (const IoError& error) {
    throw unreadable(file, what, error);
  }
}

}  // namespace tessera::files
