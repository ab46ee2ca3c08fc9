#include "framework/cli/run.h"

int main(int argc, char** argv) { return tessera::cli::run(argc, argv); }
