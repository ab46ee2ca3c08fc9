#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Kind of a trace event.
enum class TraceKind : std::uint8_t {
  phase,             ///< a part of a training step, an evaluation, a checkpoint
  data,              ///< waiting for a micro-batch
  communication,     ///< waiting inside an operation of a group of ranks
  operation,         ///< a module in the forward pass, a recorded operation in the backward pass
  kernel,            ///< one parallel loop of a kernel
  pool_thread,       ///< the part of such a loop that one pool thread executes
  reading,           ///< a worker of the data loader fills a micro-batch
  counter,           ///< the value of a counter at one time, not a span
  operation_counter  ///< a counter value recorded after each operation of the backward pass
};

/// A set of event kinds.
class TraceKinds {
 public:
  TraceKinds() = default;
  TraceKinds(std::initializer_list<TraceKind> kinds) {
    for (const auto kind : kinds) add(kind);
  }
  void add(TraceKind kind) { bits_ |= bit(kind); }
  bool has(TraceKind kind) const { return (bits_ & bit(kind)) != 0; }

 private:
  static unsigned bit(TraceKind kind) { return 1U << static_cast<unsigned>(kind); }
  unsigned bits_ = 0;
};

/// The event recorder of a process. While it is active, every TraceSpan that ends is recorded, in one track per thread.
/// At most one trace is active at a time; without an active trace, a span costs one load and one comparison. Recording
/// does not allocate memory, except for the first event of a thread. When the track of a thread is full, its further
/// events are counted and dropped.
class Trace {
 public:
  struct Event {
    std::int64_t begin = 0, end = 0;  ///< nanoseconds of the monotonic clock, which all processes of a host share
    const char* name = nullptr;       ///< valid as long as the trace, like `group` and `who`
    const char* group = nullptr;      ///< communication: name of the group of ranks; else null
    const char* who = nullptr;        ///< communication: who started the operation; else null
    /// Bytes of a communication, number of a step or micro-batch, or value of a counter; -1: none.
    std::int64_t value = -1;
    TraceKind kind = TraceKind::phase;
  };
  /// The events of one thread, in the order in which they ended.
  class Track {
   public:
    Track(std::string thread, std::size_t capacity) : thread_(std::move(thread)), events_(capacity) {}
    const std::string& thread() const { return thread_; }  ///< the thread's name, as pthread_getname_np has it
    std::size_t size() const { return used_.load(std::memory_order_acquire); }  ///< events recorded so far
    const Event& operator[](std::size_t i) const { return events_[i]; }         ///< `i` < size()
    /// events dropped because the track was full
    std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

   private:
    friend class Trace;
    std::string thread_;
    std::vector<Event> events_;
    std::atomic<std::size_t> used_ = 0;  ///< written by the thread alone
    std::atomic<std::int64_t> dropped_ = 0;
  };

  /// Records events of the given `kinds`, at most `events_per_thread` of each thread.
  Trace(TraceKinds kinds, std::size_t events_per_thread);
  /// Precondition: no thread still records into this trace or has an open TraceSpan of it.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Makes this the active trace. Throws BugError if another trace is active.
  void start();
  /// Deactivates this trace. Spans that are open now are still recorded when they end.
  void stop();

  /// The active trace if it records `kind`, else null.
  static Trace* active(TraceKind kind) {
    auto* trace = active_.load(std::memory_order_acquire);
    return trace && trace->kinds_.has(kind) ? trace : nullptr;
  }
  /// Records `event` in the calling thread's track.
  void add(const Event& event);
  /// A copy of `words`, valid as long as the trace; equal texts share one copy.
  const char* keep(std::string_view words);
  /// The tracks of all threads that have recorded so far. The pointers are valid as long as the trace; the threads may
  /// continue to record.
  std::vector<const Track*> tracks() const;

  /// The monotonic clock, in nanoseconds.
  static std::int64_t now();

 private:
  Track& own_track();

  static std::atomic<Trace*> active_;
  const TraceKinds kinds_;
  const std::size_t capacity_;
  /// number of this trace in the process: a thread compares it to find out whether its track belongs to this trace
  const std::uint64_t number_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::vector<std::unique_ptr<Track>> tracks_;
  std::set<std::string, std::less<>> words_;
};

/// Records the time of a scope in the active trace.
class TraceSpan {
 public:
  /// `name` must be valid as long as the trace: a literal, the name of a module, typeid(...).name(). `value`: see
  /// Trace::Event.
  TraceSpan(TraceKind kind, const char* name, std::int64_t value = -1) : trace_(Trace::active(kind)) {
    if (trace_) event_ = {.begin = Trace::now(), .name = name, .value = value, .kind = kind};
  }
  /// A span of kind communication: `operation` moves `bytes` bytes within `group`, a group of ranks, started by `who`.
  /// The three texts are copied.
  TraceSpan(std::string_view operation, std::string_view group, std::string_view who, std::size_t bytes)
      : trace_(Trace::active(TraceKind::communication)) {
    if (trace_)
      event_ = {.begin = Trace::now(),
                .name = trace_->keep(operation),
                .group = trace_->keep(group),
                .who = trace_->keep(who),
                .value = static_cast<std::int64_t>(bytes),
                .kind = TraceKind::communication};
  }
  ~TraceSpan() {
    if (!trace_) return;
    event_.end = Trace::now();
    trace_->add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  /// Discards this span: it is not recorded when it ends.
  void drop() { trace_ = nullptr; }

 private:
  Trace* trace_;
  Trace::Event event_;
};

/// Records that the counter `name` has the value `value` now. `name` must be a literal.
inline void trace_counter(TraceKind kind, const char* name, std::size_t value) {
  if (auto* trace = Trace::active(kind))
    trace->add({.begin = Trace::now(), .name = name, .value = static_cast<std::int64_t>(value), .kind = kind});
}

/// A readable form of `name`, a result of typeid(...).name(): the function that encloses a lambda, else the name of the
/// type, without namespaces, parameters and template arguments. A text that is no such name is returned unchanged.
std::string readable_trace_name(const char* name);

}  // namespace tessera
