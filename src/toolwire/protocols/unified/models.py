"""Nothing about models: unified leaves that to the protocol behind it."""
