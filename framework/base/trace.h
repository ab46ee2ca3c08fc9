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

/// What an event of a trace is.
enum class TraceKind : std::uint8_t {
  phase,             ///< a part of a training step, an evaluation, a checkpoint
  data,              ///< waiting for a micro-batch
  communication,     ///< waiting inside an operation of a group of ranks
  operation,         ///< a module in the forward pass, a recorded operation in the backward pass
  kernel,            ///< one parallel loop of a kernel
  pool_thread,       ///< the share of a pool thread in such a loop
  reading,           ///< a worker of the data loader fills a micro-batch
  counter,           ///< not a span: a value at one time
  operation_counter  ///< the same, after each operation of the backward pass
};

/// A set of kinds.
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

/// The recorder of one process: while it is active, every TraceSpan that ends is kept, by thread. One trace at a time
/// is active; without one, a span costs a load and a comparison. Nothing is allocated while events are recorded but for
/// a thread's first one; when the memory of a thread is full, further events of it are counted and dropped.
class Trace {
 public:
  struct Event {
    std::int64_t begin = 0, end = 0;  ///< nanoseconds of the monotonic clock, the same for all processes of a host
    const char* name = nullptr;       ///< lives as long as the trace, like the other words
    const char* group = nullptr;      ///< of ranks, of a communication; else null
    const char* who = nullptr;        ///< asked for it
    std::int64_t value =
        -1;  ///< bytes of a communication, number of a step or micro-batch, value of a counter; -1: none
    TraceKind kind = TraceKind::phase;
  };
  /// The events of one thread, in the order in which they ended.
  class Track {
   public:
    Track(std::string thread, std::size_t capacity) : thread_(std::move(thread)), events_(capacity) {}
    const std::string& thread() const { return thread_; }
    std::size_t size() const { return used_.load(std::memory_order_acquire); }
    const Event& operator[](std::size_t i) const { return events_[i]; }
    std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

   private:
    friend class Trace;
    std::string thread_;
    std::vector<Event> events_;
    std::atomic<std::size_t> used_ = 0;  ///< written by the thread alone
    std::atomic<std::int64_t> dropped_ = 0;
  };

  /// Keeps events of these kinds, at most `events_per_thread` of each thread.
  Trace(TraceKinds kinds, std::size_t events_per_thread);
  /// All threads that record outlive neither this nor their spans.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Makes this the active trace. Throws BugError if another one is.
  void start();
  /// Ends that. Spans that are open are still kept when they end.
  void stop();

  /// The active trace if it keeps this kind, else null.
  static Trace* active(TraceKind kind) {
    auto* trace = active_.load(std::memory_order_acquire);
    return trace && trace->kinds_.has(kind) ? trace : nullptr;
  }
  void add(const Event& event);
  /// A copy of `words` that lives as long as the trace; the same for the same words.
  const char* keep(std::string_view words);
  /// The tracks so far. The references stay valid; their threads may continue to record.
  std::vector<const Track*> tracks() const;

  static std::int64_t now();

 private:
  Track& own_track();

  static std::atomic<Trace*> active_;
  const TraceKinds kinds_;
  const std::size_t capacity_;
  const std::uint64_t number_;  ///< of this trace in the process: tells a thread whether its track is of this one
  mutable std::mutex mutex_;    ///< of what follows
  std::vector<std::unique_ptr<Track>> tracks_;
  std::set<std::string, std::less<>> words_;
};

/// Records the time of a scope in the active trace.
class TraceSpan {
 public:
  /// `name` lives as long as the trace: a literal, the name of a module, of typeid.
  TraceSpan(TraceKind kind, const char* name, std::int64_t value = -1) : trace_(Trace::active(kind)) {
    if (trace_) event_ = {.begin = Trace::now(), .name = name, .value = value, .kind = kind};
  }
  /// Of a communication of `bytes` in a group of ranks. The words need not live on.
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
  /// Records nothing.
  void drop() { trace_ = nullptr; }

 private:
  Trace* trace_;
  Trace::Event event_;
};

/// Records that the value `name`, a literal, is `value` now.
inline void trace_counter(TraceKind kind, const char* name, std::size_t value) {
  if (auto* trace = Trace::active(kind))
    trace->add({.begin = Trace::now(), .name = name, .value = static_cast<std::int64_t>(value), .kind = kind});
}

/// What typeid(...).name() gives, for people: the function that encloses a lambda, else the name of the type, without
/// namespaces, parameters and template arguments. Other words stay as they are.
std::string readable_trace_name(const char* name);

}  // namespace tessera
