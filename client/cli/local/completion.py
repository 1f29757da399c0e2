"""Print completion scripts for bash, zsh and fish."""

from collections.abc import Sequence

from firearrow.client.cli.command import COMPLETE, Call, Command
from firearrow.client.cli.main import BUILT_IN, own_entries

OWN_MODULES = "firearrow.client.cli."
WORDS = "words"
"""What the scripts call: `firearrow completion words WORD…`, the words of the line up to the cursor."""
BASH = """\
_firearrow() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _firearrow firearrow
"""
ZSH = """\
#compdef firearrow
_firearrow() {
    local -a found
    found=(${(f)"$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
if [[ $funcstack[1] == _firearrow ]]; then _firearrow; else compdef _firearrow firearrow; fi
"""
FISH = """\
function __firearrow_words
    set -l line (commandline -opc)
    set -l last (commandline -ct)
    $line[1] completion words $line[2..] "$last" 2>/dev/null
end
complete -c firearrow -n 'not contains -- (commandline -opc)[2] broker namesrv spark store' -f -a '(__firearrow_words)'
"""


def main(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == [WORDS]:
        return _complete(list(arguments[1:]))
    command = Command("completion", __doc__)
    command.verb("bash", bash)
    command.verb("zsh", zsh)
    command.verb("fish", fish)
    return command.run(arguments)


async def bash(call: Call) -> None:
    """Print the completion script for bash. To load it, add `source <(firearrow completion bash)` to ~/.bashrc.

    firearrow completion bash > ~/.local/share/bash-completion/completions/firearrow
    firearrow completion bash > /etc/bash_completion.d/firearrow
    """
    call.output.text(BASH.rstrip())


async def zsh(call: Call) -> None:
    """Print the completion script for zsh. To load it, add `source <(firearrow completion zsh)` to the end of ~/.zshrc.

    firearrow completion zsh > ~/.zfunc/_firearrow
    firearrow completion zsh > /usr/local/share/zsh/site-functions/_firearrow
    """
    call.output.text(ZSH.rstrip())


async def fish(call: Call) -> None:
    """Print the completion script for fish. It is loaded from the folder of completions.

    firearrow completion fish > ~/.config/fish/completions/firearrow.fish
    firearrow completion fish > /etc/fish/completions/firearrow.fish
    """
    call.output.text(FISH.rstrip())


def _complete(words: Sequence[str]) -> int:
    """Print candidates for the last word: names of commands, or what the command's parser allows there."""
    entries = own_entries()
    if len(words) < 2:
        from firearrow.client.cli.candidates import print_fitting  # noqa: PLC0415 (only to complete)

        print_fitting([*entries, *BUILT_IN], words[0] if words else "")
        return 0
    entry = entries.get(words[0])
    if entry is None or not entry.module.startswith(OWN_MODULES):
        return 0  # the shell offers files
    return entry.load()([COMPLETE, *words[1:]])
