#pragma once

#include <span>

#include "framework/options/embedded.h"

namespace tessera::report {

/// page.css, curves.js, page.js and live.js. Defined in a source that framework/options/embed.cmake writes into the
/// build folder.
std::span<const options::EmbeddedFile> page_files();

}  // namespace tessera::report
