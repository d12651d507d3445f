_toolwire() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="" verb="" word at place=0 want=""
  COMPREPLY=()
  # Bash splits words at `=`.
  if [[ $cur == "=" ]]; then cur=""; prev="${COMP_WORDS[COMP_CWORD-1]}"
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then prev="${COMP_WORDS[COMP_CWORD-2]}"
  else prev="${COMP_WORDS[COMP_CWORD-1]}"
  fi
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${COMP_WORDS[at]}"
    if [[ $word == "--" ]]; then COMPREPLY=($(compgen -f -- "$cur")); return; fi
    if [[ $word == "=" ]]; then ((at++)); continue; fi
    if [[ $word == -* ]]; then
      _toolwire_value "$verb" "$word"
      if [[ -n $want && ${COMP_WORDS[at+1]} != "=" ]]; then ((at++)); fi
    elif [[ -z $verb ]]; then verb="$word"
    elif [[ $place == 0 && -n $(_toolwire_options "$verb $word") ]]; then verb="$verb $word"
    else ((place++))
    fi
  done
  _toolwire_value "$verb" "$prev"
  if [[ -z $want && $cur == -* ]]; then want="words $(_toolwire_options "$verb")"
  elif [[ -z $want ]]; then want="$(_toolwire_place "$verb" "$place")"
  fi
  case "$want" in
    files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")) ;;
    folders) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")) ;;
    words*) COMPREPLY=($(compgen -W "${want#words }" -- "$cur")) ;;
  esac
}
