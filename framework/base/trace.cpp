#include "framework/base/trace.h"

#include <cxxabi.h>
#include <pthread.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "framework/base/error.h"

namespace tessera {
namespace {

std::atomic<std::uint64_t> traces = 0;

/// The track of this thread, and the number of the trace that owns it.
struct OwnTrack {
  std::uint64_t trace = 0;
  Trace::Track* track = nullptr;
};
thread_local OwnTrack own;

std::string name_of_this_thread() {
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

/// `words` without the text between matching brackets.
std::string without(std::string words, char open, char close) {
  std::string rest;
  int depth = 0;
  for (const char c : words) {
    if (c == open) ++depth;
    if (depth == 0) rest += c;
    if (c == close && depth > 0) --depth;
  }
  return rest;
}

}  // namespace

std::atomic<Trace*> Trace::active_ = nullptr;

Trace::Trace(TraceKinds kinds, std::size_t events_per_thread)
    : kinds_(kinds), capacity_(events_per_thread), number_(++traces) {}

Trace::~Trace() {
  Trace* self = this;
  active_.compare_exchange_strong(self, nullptr);
}

void Trace::start() {
  Trace* none = nullptr;
  must(active_.compare_exchange_strong(none, this), "one trace is active at a time");
}

void Trace::stop() {
  Trace* self = this;
  active_.compare_exchange_strong(self, nullptr);
}

std::int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Trace::Track& Trace::own_track() {
  if (own.trace == number_) return *own.track;
  const std::lock_guard lock(mutex_);
  tracks_.push_back(std::make_unique<Track>(name_of_this_thread(), capacity_));
  own = {number_, tracks_.back().get()};
  return *own.track;
}

void Trace::add(const Event& event) {
  auto& track = own_track();
  const auto at = track.used_.load(std::memory_order_relaxed);
  if (at == track.events_.size()) {
    track.dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  track.events_[at] = event;
  track.used_.store(at + 1, std::memory_order_release);
}

const char* Trace::keep(std::string_view words) {
  const std::lock_guard lock(mutex_);
  auto found = words_.find(words);
  if (found == words_.end()) found = words_.emplace(words).first;
  return found->c_str();
}

std::vector<const Trace::Track*> Trace::tracks() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Track*> all;
  for (const auto& track : tracks_) all.push_back(track.get());
  return all;
}

// A lambda is named "tessera::kernels::layer_norm(tessera::kernels::Threads&, ...)::{lambda(unsigned long)#1}".
std::string readable_trace_name(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> whole(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  if (status != 0 || !whole) return name;
  std::string words(whole.get());
  const std::string anonymous = "(anonymous namespace)::";
  for (auto at = words.find(anonymous); at != std::string::npos; at = words.find(anonymous))
    words.erase(at, anonymous.size());
  if (const auto lambda = words.find("::{lambda"); lambda != std::string::npos) words.erase(lambda);
  words = without(without(std::move(words), '(', ')'), '<', '>');
  for (const char* tail : {" const", "[abi:cxx11]"})
    if (words.size() > std::string_view(tail).size() && words.ends_with(tail))
      words.erase(words.size() - std::string_view(tail).size());
  if (const auto type = words.rfind(' '); type != std::string::npos) words.erase(0, type + 1);  // a result type
  if (const auto scope = words.rfind("::"); scope != std::string::npos) words.erase(0, scope + 2);
  return words;
}

}  // namespace tessera
