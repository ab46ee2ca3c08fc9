// planned_table TABLE SOURCE NAME: writes the C++ source of a table of planned options, which messages call NAME. Part
// of the build only.
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>

#include "framework/options/planned_source.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cout << "planned_table takes TABLE SOURCE NAME\n";
    return 2;
  }
  try {
    std::ostringstream table;
    table << std::ifstream(argv[1], std::ios::binary).rdbuf();
    const auto source = tessera::options::planned_source(table.str(), argv[3]);
    std::ofstream out(argv[2], std::ios::binary);
    if (!(out << source).flush()) {
      std::cout << argv[2] << ": cannot be written\n";
      return 1;
    }
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 2;
  }
  return 0;
}
