-- For Lmod. This file is in PREFIX/share/modulefiles/ampere and derives PREFIX from its own path, so the tree can be moved.
local prefix = myFileName():gsub("/share/modulefiles/ampere/[^/]*$", "")

whatis("ampere: joules per rank, call path and GPU kernel of MPI programs, while they run")
help([[
ampere run -- mpirun -n 4 ./program     measures a program
ampere doctor                           checks what this node has
SCOREP_SUBSTRATE_PLUGINS=ampere         does the same in a program that was built with Score-P
]])

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- Score-P finds the plugin there.
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib/ampere-plugin"))
