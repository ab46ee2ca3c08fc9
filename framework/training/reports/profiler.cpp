#include "framework/training/reports/profiler.h"

#include <algorithm>
#include <limits>
#include <map>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/number_text.h"

namespace tessera::training {
namespace {

constexpr std::size_t events_of_a_thread = std::size_t{1} << 17;  // 7 MB, touched as they are used

TraceKinds kinds(const ProfileOptions& o) {
  TraceKinds all = {TraceKind::phase, TraceKind::data, TraceKind::communication};
  if (o.profile_memory) all.add(TraceKind::counter);
  if (o.profile_data_process) all.add(TraceKind::reading);
  if (o.profile_level == ProfileLevel::level0) return all;
  if (o.profile_framework != ProfileFramework::none) all.add(TraceKind::operation);
  if (o.profile_memory && o.profile_framework == ProfileFramework::all) all.add(TraceKind::operation_counter);
  if (o.profile_op_time) all.add(TraceKind::kernel);
  if (o.profile_level == ProfileLevel::level2) all.add(TraceKind::pool_thread);
  return all;
}

const char* category(TraceKind kind) {
  switch (kind) {
    case TraceKind::phase:
      return "phase";
    case TraceKind::data:
      return "data";
    case TraceKind::communication:
      return "communication";
    case TraceKind::operation:
      return "operation";
    case TraceKind::kernel:
      return "kernel";
    case TraceKind::pool_thread:
      return "thread";
    case TraceKind::reading:
      return "reading";
    case TraceKind::counter:
    case TraceKind::operation_counter:
      return "memory";
  }
  return "";
}

bool is_counter(TraceKind kind) { return kind == TraceKind::counter || kind == TraceKind::operation_counter; }

/// Words of typeid are made readable once.
class Names {
 public:
  const std::string& of(const Trace::Event& event) {
    const auto found = names_.find(event.name);
    if (found != names_.end()) return found->second;
    const bool is_type = event.kind == TraceKind::kernel || event.kind == TraceKind::operation;
    return names_.emplace(event.name, is_type ? readable_trace_name(event.name) : event.name).first->second;
  }

 private:
  std::map<const char*, std::string> names_;
};

Json event_json(const Trace::Event& event, const std::string& name, int rank, std::size_t thread, bool communication) {
  Json json = {{"name", name}, {"cat", category(event.kind)}, {"pid", rank}, {"tid", thread}};
  json["ts"] = static_cast<double>(event.begin) / 1000;
  if (is_counter(event.kind)) {
    json["ph"] = "C";
    json["args"] = {{"bytes", event.value}};
    return json;
  }
  json["ph"] = "X";
  json["dur"] = static_cast<double>(event.end - event.begin) / 1000;
  if (event.kind == TraceKind::communication) {
    if (communication) json["args"] = {{"bytes", event.value}, {"group", event.group}, {"purpose", event.who}};
  } else if (event.value >= 0) {
    json["args"] = {{"number", event.value}};
  }
  return json;
}

/// Spans of one thread, outer ones before those inside them. A thread's spans are nested, but end before they are kept.
std::vector<const Trace::Event*> nested(const Trace::Track& track) {
  std::vector<const Trace::Event*> spans;
  for (std::size_t i = 0; i < track.size(); ++i)
    if (!is_counter(track[i].kind)) spans.push_back(&track[i]);
  std::stable_sort(spans.begin(), spans.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  return spans;
}

void add(std::vector<ProfileSummary::Part>& parts, const std::string& name, double seconds) {
  auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.name == name; });
  if (found == parts.end()) found = parts.insert(parts.end(), {name});
  found->seconds += seconds;
  ++found->count;
}

void sort_by_time(std::vector<ProfileSummary::Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
}

/// Spans that are open while others are walked, with the time of the spans inside them that were counted apart.
struct Open {
  const Trace::Event* span;
  double apart = 0;
};

constexpr std::string_view step_name = "step";  // of the span that Trainer opens

}  // namespace

ProfileSummary summarize(const Trace::Track& track) {
  ProfileSummary all;
  Names names;
  std::vector<Open> phases, kernels;  // those that are open, the innermost last
  const auto close = [&](std::vector<Open>& open, std::vector<ProfileSummary::Part>& parts, std::int64_t until) {
    while (!open.empty() && open.back().span->end <= until) {
      const auto [span, apart] = open.back();
      open.pop_back();
      const double seconds = static_cast<double>(span->end - span->begin) * 1e-9;
      const bool communicates = span->kind == TraceKind::communication;
      add(parts, communicates ? "waiting for other ranks" : names.of(*span), seconds - apart);
      if (!open.empty()) open.back().apart += seconds;
    }
  };
  for (const auto* span : nested(track)) {
    close(phases, all.phases, span->begin);
    close(kernels, all.kernels, span->begin);
    if (span->kind == TraceKind::kernel && !phases.empty()) kernels.push_back({span});
    if (span->kind != TraceKind::phase && span->kind != TraceKind::data && span->kind != TraceKind::communication)
      continue;
    if (phases.empty() && span->name != step_name) continue;  // an evaluation, a checkpoint
    if (phases.empty()) {
      all.seconds += static_cast<double>(span->end - span->begin) * 1e-9;
      ++all.steps;
      all.first = std::min(all.first, span->value), all.last = std::max(all.last, span->value);
    }
    phases.push_back({span});
  }
  constexpr auto end = std::numeric_limits<std::int64_t>::max();
  close(phases, all.phases, end);
  close(kernels, all.kernels, end);
  for (auto& part : all.phases)
    if (part.name == step_name) part.name = "other";
  sort_by_time(all.phases);
  sort_by_time(all.kernels);
  return all;
}

std::vector<std::string> profile_lines(const ProfileSummary& summary) {
  if (summary.steps == 0) return {};
  const auto each = summary.seconds / static_cast<double>(summary.steps);
  const bool all = summary.steps == summary.last - summary.first + 1;
  auto line = text("profile of ", all ? "" : text(summary.steps, " steps in "), "iterations ", summary.first, " to ",
                   summary.last, ", ", short_number(1000 * each), " ms each:");
  for (const auto& part : summary.phases)
    line +=
        text(&part == &summary.phases[0] ? " " : ", ", part.name, " ", percent_text(part.seconds / summary.seconds));
  std::vector<std::string> lines = {line};
  if (summary.kernels.empty()) return lines;
  line = "its kernels:";
  constexpr std::size_t shown = 12;
  for (std::size_t i = 0; i < std::min(shown, summary.kernels.size()); ++i) {
    const auto& part = summary.kernels[i];
    line += text(i == 0 ? " " : ", ", part.name, " ", percent_text(part.seconds / summary.seconds), " (",
                 part.count / summary.steps, " times)");
  }
  lines.push_back(line);
  return lines;
}

std::int64_t dropped_events(const Trace& trace) {
  std::int64_t all = 0;
  for (const auto* track : trace.tracks()) all += track->dropped();
  return all;
}

std::string trace_json(const Trace& trace, int rank, const std::string& process, bool communication) {
  Names names;
  std::string all = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const auto meta = [&](const char* what, std::size_t thread, const std::string& name) {
    all += Json{{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}}.dump();
  };
  meta("process_name", 0, process);
  const auto tracks = trace.tracks();
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    const auto& track = *tracks[t];
    all += ",\n";
    meta("thread_name", t, track.thread());
    for (std::size_t i = 0; i < track.size(); ++i)
      all += ",\n" + event_json(track[i], names.of(track[i]), rank, t, communication).dump();
  }
  return all + text("\n],\"otherData\":{\"dropped_events\":", dropped_events(trace), "}}\n");
}

Profiler::Profiler(ProfileOptions options, const parallel::ProcessGroups& processes,
                   const std::filesystem::path& output_dir)
    : options_(std::move(options)),
      processes_(processes),
      folder_(options_.profile_save_path ? std::filesystem::path(*options_.profile_save_path)
                                         : output_dir / "profile") {}

bool Profiler::is_profiled_rank() const {
  const auto& ranks = options_.profile_ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), processes_.world.rank()) != ranks.end();
}

void Profiler::before_step(std::int64_t iteration) {
  if (!options_.profile || recording_ || trace_) return;  // trace_ alone: it has been written
  if (iteration < options_.profile_step_start || iteration > options_.profile_step_end || !is_profiled_rank()) return;
  trace_ = std::make_unique<Trace>(kinds(options_), events_of_a_thread);
  recording_ = true;
  trace_->start();
}

std::vector<std::string> Profiler::after_step(std::int64_t iteration, bool last) {
  if (!recording_ || (iteration < options_.profile_step_end && !last)) return {};
  recording_ = false;
  trace_->stop();
  return write();
}

std::vector<std::string> Profiler::write() {
  const auto& place = processes_.place;
  const auto rank = processes_.world.rank();
  const auto process =
      text("rank ", rank, ": tp ", place.tensor, " cp ", place.context, " dp ", place.data, " pp ", place.pipeline);
  const auto file = folder_ / text("rank_", rank) / "trace.json";
  std::vector<std::string> lines;
  if (!options_.profile_offline_analyse) {
    // The thread that drives the steps is the only one with phases.
    for (const auto* track : trace_->tracks())
      for (auto& line : profile_lines(summarize(*track))) lines.push_back(std::move(line));
  }
  if (const auto lost = dropped_events(*trace_); lost > 0)
    lines.push_back(text("the profile lacks ", lost, " events and the steps in which they were: a thread has room for ",
                         events_of_a_thread, "; profile fewer steps or a lower profile_level"));
  try {
    std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, trace_json(*trace_, rank, process, options_.profile_communication));
    if (options_.profile_parallel_strategy && writes_layout()) write_layout();
    lines.push_back(text("trace: ", file.string(), "; open it with https://ui.perfetto.dev or chrome://tracing"));
  } catch (const std::exception& error) {
    lines.push_back(text("the trace could not be written: ", error.what()));
  }
  return lines;
}

/// The first profiled rank that the run has does: all would write the same.
bool Profiler::writes_layout() const {
  const auto& ranks = options_.profile_ranks;
  const auto first = std::ranges::find_if(ranks, [&](auto rank) { return rank < processes_.world.size(); });
  return processes_.world.rank() == (first == ranks.end() ? 0 : *first);
}

std::string Profiler::missing_ranks() const {
  if (!options_.profile) return "";
  std::string missing;
  for (const auto rank : options_.profile_ranks)
    if (rank >= processes_.world.size()) missing += text(missing.empty() ? "" : ", ", rank);
  if (missing.empty()) return "";
  return text("profile_ranks has ", missing, ", but the ranks of this run are 0 to ", processes_.world.size() - 1);
}

void Profiler::write_layout() const {
  const auto& mesh = processes_.mesh;
  const auto& sizes = mesh.sizes();
  Json all = {{"tensor_model_parallel_size", sizes.tensor}, {"context_parallel_size", sizes.context},
              {"data_parallel_size", sizes.data},           {"pipeline_model_parallel_size", sizes.pipeline},
              {"expert_model_parallel_size", sizes.expert}, {"expert_tensor_parallel_size", sizes.sharers_of_expert()}};
  for (int rank = 0; rank < sizes.world(); ++rank) {
    const auto place = mesh.place_of(rank);
    const auto expert = mesh.expert_place_of(rank);
    all["ranks"].push_back({{"rank", rank},
                            {"tp", place.tensor},
                            {"cp", place.context},
                            {"dp", place.data},
                            {"pp", place.pipeline},
                            {"ep", expert.expert},
                            {"etp", expert.expert_tensor},
                            {"edp", expert.data}});
  }
  write_file_atomic(folder_ / "parallel_strategy.json", all.dump(1) + "\n");
}

}  // namespace tessera::training
