#include "launch/tsrun/shell_completion.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <sstream>
#include <vector>

#include "framework/base/escaped_text.h"
#include "launch/tsrun/option_table.h"

namespace tessera::tsrun {
namespace {

/// Whether a part of a placeholder is a word to type: "auto", "True"; not "N", "FILE" or "MIN:MAX".
bool is_word(const std::string& part) {
  const auto small = [](unsigned char c) { return std::islower(c) != 0; };
  return !part.empty() && std::any_of(part.begin(), part.end(), small) &&
         part.find_first_of(":=,") == std::string::npos;
}

/// The words that an option accepts, in the order of its placeholder; empty: other values.
std::string words_of(const OptionRow& row) {
  std::string all;
  std::istringstream parts(row.value);
  for (std::string part; std::getline(parts, part, '|');)
    if (is_word(part)) all += (all.empty() ? "" : " ") + part;
  return all;
}

std::string names_of(const OptionRow& row) { return row.brief.empty() ? row.name : row.name + "|" + row.brief; }

/// The functions that bash and zsh share: the names of the options, the kind of an option's value, its words.
void print_tables(std::ostream& out) {
  out << "_tsrun_options=\"";
  for (const auto& row : option_table()) out << row.name << (row.brief.empty() ? "" : " " + row.brief) << " ";
  out << "\"\n_tsrun_kind() {\n  case \"${1//-/_}\" in\n";
  for (const auto& row : option_table()) {
    if (row.value.empty()) continue;
    auto name = names_of(row);
    std::replace(name.begin(), name.end(), '-', '_');
    const bool file = row.value == "FILE", folder = row.value == "DIR";
    out << "    " << name << ") echo \"" << (file ? "file" : folder ? "folder" : "words " + words_of(row)) << "\" ;;\n";
  }
  out << "  esac\n}\n";
}

// Bash cuts words at "=" but for COMP_LINE.
constexpr const char* bash = R"sh(_tsrun() {
  local line="${COMP_LINE:0:COMP_POINT}" current previous kind word names="$_tsrun_options" takes=0
  current="${line##*[[:space:]]}"
  local -a before
  read -ra before <<< "${line%"$current"}"
  previous="${before[${#before[@]}-1]}"
  for word in "${before[@]:1}"; do
    if ((takes)); then takes=0; continue; fi
    case "$word" in
      --) continue ;;
      -*=*) ;;
      -*) [[ -n $(_tsrun_kind "$word") ]] && takes=1 ;;
      *) _tsrun_program "${word##*/}"; return 0 ;;
    esac
  done
  if ((takes)); then
    kind=$(_tsrun_kind "$previous")
  elif [[ $current == -*=* ]]; then
    kind=$(_tsrun_kind "${current%%=*}")
    [[ $COMP_WORDBREAKS == *=* ]] && current="${current#*=}"
  elif [[ $current == -* ]]; then
    [[ ${current#--} == *-* ]] && names=" ${names//_/-}"
    COMPREPLY=($(compgen -W "$names" -- "$current"))
    return 0
  else
    COMPREPLY=($(compgen -c -- "$current"))
    compopt -o default 2>/dev/null
    return 0
  fi
  case "$kind" in
    folder) COMPREPLY=($(compgen -d -- "$current")); compopt -o filenames 2>/dev/null ;;
    file) COMPREPLY=($(compgen -f -- "$current")); compopt -o filenames 2>/dev/null ;;
    *) COMPREPLY=($(compgen -W "${kind#words}" -- "$current")) ;;
  esac
  return 0
}
_tsrun_program() {
  # bash-completion loads a program's completion when it is first completed.
  if [[ $(type -t "_$1") != function && $(type -t _completion_loader) == function ]]; then
    _completion_loader "$1"
  fi
  if [[ $(type -t "_$1") == function ]]; then
    "_$1"
  else
    compopt -o default 2>/dev/null
  fi
}
complete -F _tsrun tsrun
)sh";

// In a folder of fpath the whole script is the body of the function _tsrun, which zsh calls to complete.
constexpr const char* zsh = R"sh(_tsrun() {
  local word kind previous=$words[CURRENT-1] current=$words[CURRENT] names=$_tsrun_options takes=0 at=1
  for word in ${words[2,CURRENT-1]}; do
    (( at += 1 ))
    if (( takes )); then takes=0; continue; fi
    case $word in
      (--|-*=*) ;;
      (-*) [[ -n $(_tsrun_kind $word) ]] && takes=1 ;;
      (*) words=(${words[at,-1]}); (( CURRENT -= at - 1 )); _normal; return ;;
    esac
  done
  if (( takes )); then
    kind=$(_tsrun_kind $previous)
  elif [[ $current == -*=* ]]; then
    kind=$(_tsrun_kind ${current%%=*})
    compset -P '*='
  elif [[ $current == -* ]]; then
    [[ ${current#--} == *-* ]] && names=${names//_/-}
    compadd -- ${=names}
    return
  else
    _command_names -e; _files
    return
  fi
  case $kind in
    (folder) _files -/ ;;
    (file) _files ;;
    (*) compadd -- ${=kind#words} ;;
  esac
}
if [[ $funcstack[1] == _tsrun ]]; then
  _tsrun "$@"
elif (( $+functions[compdef] )); then
  compdef _tsrun tsrun
fi
)sh";

constexpr const char* fish = R"sh(function __tsrun_program
  set -l words (commandline -opc)
  set -l takes 0
  for at in (seq 2 (count $words))
    if test $takes = 1
      set takes 0
    else if string match -q -- '-*' $words[$at]
      string match -q -- '*=*' $words[$at]; or contains -- $words[$at] $__tsrun_take; and set takes 1
    else
      echo $at
      return
    end
  end
  return 1
end
complete -c tsrun -e
complete -c tsrun -n '__tsrun_program >/dev/null' -x -a '(__fish_complete_subcommand --fcs-skip=(math (__tsrun_program) - 1))'
complete -c tsrun -n 'not __tsrun_program >/dev/null' -a '(__fish_complete_command)'
)sh";

void print_fish(std::ostream& out) {
  out << "# Completion of tsrun for fish; load it with: tsrun --completion fish | source\nset -g __tsrun_take";
  for (const auto& row : option_table())
    if (!row.value.empty()) out << " " << row.name << (row.brief.empty() ? "" : " " + row.brief);
  out << "\n" << fish;
  for (const auto& row : option_table()) {
    out << "complete -c tsrun -n 'not __tsrun_program >/dev/null' -l " << row.name.substr(2);
    if (!row.brief.empty()) out << " -s " << row.brief.substr(1);
    if (const auto words = words_of(row); !words.empty())
      out << " -x -a '" << words << "'";
    else if (!row.value.empty())
      out << (row.value == "FILE" || row.value == "DIR" ? " -r" : " -x");
    out << " -d " << in_shell_quotes(row.meaning) << "\n";
  }
}

void print_rows(std::ostream& out, const char* heading, const std::vector<OptionRow>& rows, Dialect dialect) {
  out << ".SS " << heading << "\n";
  for (const auto& row : rows) {
    if (row.dialect != dialect) continue;
    out << ".TP\n\\fB" << in_roff(row.name) << "\\fR";
    if (!row.brief.empty()) out << ", \\fB" << in_roff(row.brief) << "\\fR";
    if (!row.value.empty()) out << " \\fI" << in_roff(row.value) << "\\fR";
    out << "\n" << in_roff(row.meaning) << "\n";
  }
}

}  // namespace

void print_completion(std::ostream& out, const std::string& shell) {
  if (shell == "fish") return print_fish(out);
  out << (shell == "zsh" ? "#compdef tsrun\n" : "") << "# Completion of tsrun for " << shell << "; load it "
      << (shell == "zsh" ? "after compinit " : "") << "with: source <(tsrun --completion " << shell << ")\n";
  print_tables(out);
  out << (shell == "zsh" ? zsh : bash);
}

void print_manual(std::ostream& out) {
  out << ".\\\" Made by `tsrun --man` from the table of its options.\n.TH TSRUN 1 \"\" \"tsrun\" \"User Commands\"\n"
         ".SH NAME\ntsrun \\- start a program on several processors and hosts, as one MPI job\n.SH SYNOPSIS\n"
         ".B tsrun\n.RI [ OPTION ...]\n.I PROGRAM\n.RI [ ARGUMENT ...]\n.SH DESCRIPTION\n"
         "Starts PROGRAM once for each worker, monitors the workers, and reports the one that failed first. Options "
         "of\n"
         "msrun and of torchrun have their original names, meanings and defaults, and do not mix. Inside names \\- and "
         "_\n"
         "are equivalent.\n.SH OPTIONS\n";
  print_rows(out, "For both", option_table(), Dialect::either);
  print_rows(out, "msrun\\(aqs", option_table(), Dialect::msrun);
  print_rows(out, "torchrun\\(aqs (each may also come from PET_NAME)", option_table(), Dialect::torchrun);
  out << ".SH ENVIRONMENT\n";
  print_rows(out, "MindIO TTP", ttp_table(), Dialect::either);
  out << ".SH EXIT STATUS\n.TP\n.B 0\nAll workers are done.\n.TP\n.B 1\nA worker hung, did not start, or exited before "
         "its work was done; a "
         "host was lost.\n.TP\n.B 2\nWrong arguments or recipe; nothing was "
         "started.\n.TP\n.B 20\nThe restarts are used up; the state is saved.\n.TP\n.B 21\nA step failed alike twice; "
         "the state is saved.\n.TP\n.B 22\nThe state could not be saved.\n.TP\nother\nThe code of the worker that "
         "failed "
         "first (128 + its signal).\n.SH SEE ALSO\n.BR tessera (1)\n";
}

}  // namespace tessera::tsrun
