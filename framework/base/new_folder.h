#pragma once

#include <filesystem>
#include <functional>

namespace tessera {

/// Creates the folder `out`, which is absent or empty, with the files that `write` puts into the folder it is given. At
/// any time, also after a crash, `out` is as before or complete: the files are written under the name `out`_tmp, which
/// is renamed. If `write` throws, they are deleted. Throws ConfigError if `out` has content, or if `out`_tmp exists;
/// IoError.
void make_new_folder(const std::filesystem::path& out,
                     const std::function<void(const std::filesystem::path& folder)>& write);

}  // namespace tessera
