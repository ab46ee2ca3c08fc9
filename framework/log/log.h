#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::log {

/// Severity of a message. The log shows messages of its level and of the levels after it.
enum class LogLevel { debug, info, warning, error };
inline constexpr std::array<std::pair<const char*, LogLevel>, 4> log_levels = {
    {{"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warning", LogLevel::warning}, {"error", LogLevel::error}}};

/// The level that `word` names: "debug", "info", "warning" or "error". Throws ConfigError for another word.
LogLevel log_level_of(std::string_view word);

/// Writes the messages of one component, for example `const Logger logger("comm");`, to standard error and, in a run,
/// to the run's log file. All threads may use it at any time; it never throws and never blocks for longer than a write.
///
/// A message is plain text; one newline at its end is left out, and an empty message shows nothing. Control characters
/// become visible (base/visible_text.h). A warning that repeats an earlier one word for word is shown at most once a
/// minute, with the number of repetitions.
class Logger {
 public:
  /// `component` must stay valid as long as the logger.
  explicit constexpr Logger(const char* component) : component_(component) {}

  void debug(std::string_view message) const { write(LogLevel::debug, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void warning(std::string_view message) const { write(LogLevel::warning, message); }
  void error(std::string_view message) const { write(LogLevel::error, message); }
  void write(LogLevel level, std::string_view message) const;

  /// Whether messages of `level` are shown. Check this first if composing the message is expensive.
  static bool shows(LogLevel level);

 private:
  const char* component_;
};

/// Sets the level of the whole process from the command line (--log-level). Default: info.
void set_log_level(LogLevel level);
/// Sets the level from the recipe. Has no effect after set_log_level, because the command line takes precedence.
void set_log_level_from_recipe(LogLevel level);

/// Marks all later messages as those of rank `rank` of `ranks`. With several ranks each line on standard error has
/// time, rank, level and component, because the lines of all ranks end up in one terminal or log file; with one rank it
/// has the message alone, coloured on a terminal unless the environment variable NO_COLOR is set.
void set_log_rank(int rank, int ranks);

/// Also appends all messages to `file`, with time, rank, level and component. The file is created when the first
/// message is written. Empty name: no log file. If the file cannot be written, this is reported once on standard error,
/// and no further messages are written to it.
void set_log_file(const std::string& file);

/// Writes lines in a format that other programs parse, such as Megatron-LM's line for an iteration. They are written
/// unchanged (control characters become visible), at level info, to a file descriptor and to the log file. Does not
/// allocate memory for ASCII text.
class LineLog {
 public:
  /// `descriptor` must stay open as long as this object lives; it is not closed.
  explicit LineLog(int descriptor) : descriptor_(descriptor) {}
  /// Writes `lines`, each of which ends with a newline. `console` false: only to the log file.
  void write(std::string_view lines, bool console = true) const;

 private:
  int descriptor_;
};

/// A text at the bottom of a terminal that is rewritten repeatedly, such as a progress bar. Log messages and lines
/// appear above it. Does not allocate memory after construction; failed writes are ignored.
class StatusLine {
 public:
  /// `descriptor`: of a terminal for which suits() is true; it must stay open as long as this object lives.
  explicit StatusLine(int descriptor);
  ~StatusLine();  ///< removes the text from the terminal
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether `descriptor` is a terminal that interprets cursor control sequences (TERM is set and is not "dumb").
  static bool suits(int descriptor);
  /// Width of the terminal, in characters; 80 if it is unknown.
  int columns() const;
  /// Replaces the text by `text`, one line; characters beyond max_text bytes are cut off.
  void show(std::string_view text);
  /// Removes the text from the terminal until the next draw() or show().
  void hide();
  /// Draws the text again.
  void draw();
  /// Ends the line, so that the text stays on the terminal and the next show() begins below it.
  void leave();
  bool visible() const { return drawn_ > 0; }

 private:
  static constexpr std::size_t max_text = 2048;
  int descriptor_;
  int drawn_ = 0;  // characters on the terminal now
  std::size_t size_ = 0;
  char text_[max_text];
};

}  // namespace tessera::log
