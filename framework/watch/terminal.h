#pragma once

#include <signal.h>

#include <optional>
#include <string>

#include "framework/watch/screen.h"

namespace tessera::watch {

/// The keys of `tessera watch`.
enum class Key {
  other,
  quit,
  help,
  next_chart,
  previous_chart,
  up,
  down,
  logarithmic,
  closer,
  wider,
  all,
  one_chart,
  filter,
  escape,
  erase
};

/// A key that was pressed.
struct KeyPress {
  Key key = Key::other;
  std::string text = {};  ///< the character in UTF-8, if it can be part of a text
};

/// Takes the first key off `bytes`, which a terminal sent. Nothing if `bytes` is empty.
std::optional<KeyPress> take_key(std::string& bytes);

/// The terminal at descriptors 0 and 1 in raw mode, with its second screen. It is restored by the destructor, and when
/// a signal ends the program. At most one object may exist at a time.
class Terminal {
 public:
  /// Whether descriptors 0 and 1 are a terminal that interprets cursor control sequences.
  static bool suits();
  /// Throws IoError if the terminal does not accept the mode.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Columns and rows now.
  static Screen blank_screen();
  /// Writes what differs from the last screen shown.
  void show(const Screen& screen);
  /// The next key; nothing after `seconds`, or when the size changed, a signal came or the terminal was closed.
  std::optional<KeyPress> key(double seconds);
  /// The signal that asks the program to end (SIGINT, SIGTERM, SIGHUP); 0: none came. A terminal that was closed counts
  /// as SIGHUP.
  int ended_by() const;

 private:
  sigset_t mask_before_ = {};  ///< of signals; the handled ones are delivered only while key() waits
  bool colors_;
  bool closed_ = false;
  std::string bytes_;  ///< received and not used yet
  std::optional<Screen> shown_;
};

}  // namespace tessera::watch
