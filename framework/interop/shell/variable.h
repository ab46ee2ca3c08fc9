#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::shell {

/// A variable of a script. One that has no element is not set: `unset X`, `declare X`, A=().
struct Variable {
  std::map<long long, std::string> items;                      ///< by index; a variable that is no list has one at 0
  std::vector<std::pair<std::string, std::string>> key_items;  ///< for `declare -A`: key and value, the oldest first
  bool list = false, named = false;                            ///< indexed by number or by key
  bool exported = false, integer = false, lower = false, upper = false, readonly = false;
  bool reference = false;  ///< declare -n: its value is the name of the variable that is meant

  bool is_set() const { return value() != nullptr; }
  std::size_t size() const { return named ? key_items.size() : items.size(); }
  /// The element with index 0 or key "0", which $NAME gives; null if there is none.
  const std::string* value() const { return named ? at(std::string("0")) : at(0); }
  const std::string* at(const std::string& key) const;
  const std::string* at(long long index) const;
  /// An index from the end, -1, as one from the beginning; below 0 if there is none.
  long long index(long long given) const;
  std::string& put(const std::string& key);  ///< the element with this key, new and empty if there is none
  void drop(const std::string& key);
  /// In the order in which Bash 5 lists them: indices ascending, keys by their hash.
  std::vector<std::string> values() const;
  std::vector<std::string> keys() const;

 private:
  std::vector<std::size_t> order() const;
};

}  // namespace tessera::shell
