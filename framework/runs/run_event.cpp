#include "framework/runs/run_event.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"

namespace tessera::runs {
namespace {

constexpr std::size_t longest_event = std::size_t{1} << 16, most_events = 4000, kept_first = 500,
                      most_bytes = std::size_t{16} << 20;

/// The members that told() shows, in this order.
const std::map<std::string_view, std::vector<std::string_view>>& shown_members() {
  static const std::map<std::string_view, std::vector<std::string_view>> members = {
      {"start", {"start", "ranks", "resumed_from", "version"}},
      {"saved", {"path", "format", "bytes", "seconds"}},
      {"save_failed", {"path", "message"}},
      {"skipped", {"first", "last", "reason"}},
      {"went_back", {"to", "reason"}},
      {"note", {"message"}},
      {"failed", {"rank", "host", "message"}},
      {"restart", {"attempt", "ranks", "reason"}},
      {"stopped", {"reason"}},
      {"finished", {}}};
  return members;
}

}  // namespace

std::string RunEvent::words(std::string_view name) const {
  const auto* found = facts.find(name);
  if (found == nullptr || found->is_null()) return "";
  return found->is_string() ? found->string() : found->dump();
}

std::string told(const RunEvent& event) {
  std::vector<std::string> names;
  if (const auto known = shown_members().find(event.kind); known != shown_members().end()) {
    for (const auto name : known->second) names.emplace_back(name);
  } else {
    for (const auto& member : event.facts.items()) names.push_back(member.name);
  }
  std::string all;
  for (const auto& name : names) {
    if (name == "time" || name == "event" || name == "iteration") continue;
    const auto words = event.words(name);
    if (words.empty()) continue;
    all += all.empty() ? "" : ", ";
    all += name == "message" || name == "reason" || name == "path" ? words : text(name, " ", words);
  }
  return all;
}

RunEvents::RunEvents(const std::filesystem::path& file) : lines_(file, longest_event) {}

bool RunEvents::refresh() {
  return lines_.refresh({[this] {
                           events_.clear();
                           bytes_.clear();
                           all_bytes_ = 0;
                           left_out_ = damaged_ = 0;
                         },
                         [this](std::string_view line, std::size_t known) {
                           if (known == 0) add(line);
                         }});
}

void RunEvents::add(std::string_view line) {
  auto json = parse_json(line);
  const auto* kind = json.find("event");
  if (kind == nullptr || !kind->is_string()) {
    ++damaged_;
    return;
  }
  RunEvent event;
  event.kind = kind->string();
  if (const auto* time = json.find("time"); time != nullptr && time->is_number()) event.time = time->number();
  if (const auto* at = json.find("iteration"); at != nullptr && at->is_number() && at->number() >= 0)
    event.iteration = static_cast<std::int64_t>(std::min(at->number(), 1e18));
  event.facts = std::move(json);
  events_.push_back(std::move(event));
  bytes_.push_back(line.size());
  all_bytes_ += line.size();
  while (events_.size() > kept_first + 1 && (events_.size() > most_events || all_bytes_ > most_bytes)) {
    const auto at = static_cast<std::ptrdiff_t>(kept_first);
    all_bytes_ -= bytes_[kept_first];
    events_.erase(events_.begin() + at);
    bytes_.erase(bytes_.begin() + at);
    ++left_out_;
  }
}

const RunEvent* RunEvents::newest(std::string_view kind) const {
  const auto found =
      std::find_if(events_.rbegin(), events_.rend(), [kind](const RunEvent& event) { return event.kind == kind; });
  return found == events_.rend() ? nullptr : &*found;
}

}  // namespace tessera::runs
