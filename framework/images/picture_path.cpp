#include "framework/images/picture_path.h"

#include <climits>

#include "framework/base/error.h"
#include "framework/base/visible_text.h"

namespace tessera::images {

std::string path_of(std::string_view address) {
  constexpr const char* advice = "; only files are read: save the picture as a file and give its path";
  constexpr std::string_view local = "file://";
  auto path = address;
  if (path.starts_with(local)) path.remove_prefix(local.size());
  if (path.empty()) throw ConfigError("the path of an image is empty; give the path of a file");
  if (path.find("://") != std::string_view::npos || path.starts_with("data:"))
    throw ConfigError(text("the image ", shortened(visible(address)), " is no file", advice));
  if (path.size() >= PATH_MAX)
    throw ConfigError(text("the image ", shortened(visible(address)), " is no path, which has fewer than ", PATH_MAX,
                           " bytes", advice));
  return std::string(path);
}

std::string shown_path(const std::filesystem::path& path) {
  constexpr std::size_t longest = 250;
  auto words = visible(path.native());
  return words.size() > longest ? shortened(words) : words;
}

}  // namespace tessera::images
