#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/json.h"

namespace tessera {

/// File in a run folder that tells what happened to the run, one JSON object per line: docs/metrics.md has the kinds.
/// The run and its launcher only append to it.
inline constexpr const char* events_file_name = "events.jsonl";
/// Maximum length of a line, with its line break. Texts of longer events are cut and end with "...".
inline constexpr std::size_t longest_event = std::size_t{16} << 10;

/// Appends {"time": now, "event": kind, "iteration": iteration, ...facts} to `folder`/events.jsonl in one write, so
/// that lines of several processes do not mix; after an incomplete line, on a new one. `iteration`: steps completed;
/// absent: unknown. Does not throw, because a run matters more than its log. Returns why nothing was written; empty if
/// it was.
std::string append_event(const std::filesystem::path& folder, std::string_view kind,
                         std::optional<std::int64_t> iteration, const Json& facts = Json::object());

}  // namespace tessera
