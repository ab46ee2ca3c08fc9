#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::torch {

/// What Python's pickle holds, read as data. Nothing is executed: a call stays a note of what would be called with
/// what.
struct PickleNode {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    words,       ///< a string or bytes, in `text`
    list,        ///< items
    tuple,       ///< items
    dict,        ///< items: key, value, key, value, ... in the order they were set
    global,      ///< text: "torch FloatStorage"
    call,        ///< items: what is called, the tuple of arguments; with a state also that
    persistent,  ///< items: the id; torch's storages
  };
  Kind kind = Kind::none;
  bool flag = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<const PickleNode*> items;

  /// The value under a text key of a dict; null when there is none or this is not a dict.
  const PickleNode* find(std::string_view key) const;
  bool is_none() const { return kind == Kind::none; }
};

/// A pickle, read whole. Nodes live as long as it does; they may be shared.
class Pickle {
 public:
  /// Protocols 2 to 5 as torch.save and Python write plain data. Throws ConfigError, beginning with `speaker`, for an
  /// opcode that is not on the list of those that make data, for a global that no checkpoint of Megatron-LM needs
  /// (`os.system` is one), for what is cut short or refers to nothing, and for more than ten million values.
  /// `also`: beginnings of "module name" of globals that may be named beside those.
  /// Source: the opcodes as CPython's pickletools describes them.
  Pickle(std::span<const std::byte> bytes, const std::string& speaker, const std::vector<std::string>& also = {});
  Pickle(Pickle&&) = default;

  const PickleNode& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<PickleNode> nodes_;
  const PickleNode* root_ = nullptr;
};

/// Writes a pickle of protocol 2, value by value.
class PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02") {}
  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void real(double value);
  void text(std::string_view words);
  void global(std::string_view module, std::string_view name);
  void empty_dict() { out_ += '}'; }
  void empty_list() { out_ += ']'; }
  void empty_tuple() { out_ += ')'; }
  /// What stands between `mark` and the next three goes into the dict or list below the mark, or becomes a tuple.
  void mark() { out_ += '('; }
  void set_items() { out_ += 'u'; }
  void append_items() { out_ += 'e'; }
  void tuple() { out_ += 't'; }
  void call() { out_ += 'R'; }        ///< what is called, its tuple of arguments -> the result
  void make() { out_ += '\x81'; }     ///< a class, its tuple of arguments -> an object
  void state() { out_ += 'b'; }       ///< an object, its state -> the object
  void persistent() { out_ += 'Q'; }  ///< an id -> what it stands for
  std::string finish() { return out_ + '.'; }

 private:
  void number(std::uint64_t value, std::size_t size);
  std::string out_;
};

}  // namespace tessera::torch
