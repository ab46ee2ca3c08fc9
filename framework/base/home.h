#pragma once

#include <string>

namespace tessera {

/// Replaces a leading "~" or "~/" of a path by the user's home folder (HOME, else the user database), as shells do for
/// words of a command line; they do it neither in files nor behind "--option=". Returns other text unchanged; a file
/// whose name is "~" is "./~".
std::string with_home(const std::string& path);

}  // namespace tessera
