#include "framework/files/unfinished_file.h"

#include "framework/base/files.h"

namespace tessera::files {
namespace {

namespace fs = std::filesystem;

AppendFile create(const fs::path& name) {
  try {
    return AppendFile::create(name);
  } catch (const IoError& error) {
    throw ConfigError(text("the output cannot be written: ", error.what()));
  }
}

}  // namespace

UnfinishedFile::UnfinishedFile(const fs::path& name) : name_(name), file_(create(temporary(name))) {}

UnfinishedFile::~UnfinishedFile() {
  std::error_code ignored;
  if (!finished_ && file_.has_its_name()) fs::remove(file_.path(), ignored);
}

fs::path UnfinishedFile::temporary(const fs::path& name) { return name.string() + ".unfinished"; }

void UnfinishedFile::finish() {
  require_no_lost_pages();
  file_.sync();
  file_.require_its_name();
  try {
    fs::rename(file_.path(), name_);
  } catch (const fs::filesystem_error& error) {
    throw IoError(text("cannot rename ", file_.path().string(), " to ", name_.string(), ": ", error.code().message()));
  }
  finished_ = true;
  sync_folder(name_.has_parent_path() ? name_.parent_path() : fs::path("."));
}

}  // namespace tessera::files
