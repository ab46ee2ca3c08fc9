#include "framework/base/new_folder.h"

#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

}  // namespace

void make_new_folder(const fs::path& out, const std::function<void(const fs::path& folder)>& write) {
  const auto folder = out.has_filename() ? out : out.parent_path();  // "out/" is the folder out
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
    throw ConfigError(text(folder.string(), ": is there already; give a new or an empty folder"));
  const auto target = fs::exists(folder) ? fs::canonical(folder) : folder;
  const fs::path unfinished = target.string() + "_tmp";
  if (fs::exists(fs::symlink_status(unfinished)))
    throw ConfigError(text(unfinished.string(), ": is there already, and the files are first written under that name; ",
                           "delete it if a conversion that was cut short left it"));
  make_folder(unfinished);
  try {
    write(unfinished);
    sync_folder(unfinished);
    rename_or_exchange(unfinished, target);  // which is absent or empty
    sync_folder(target.parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace tessera
