#%Module
# For Environment Modules. This file is in PREFIX/share/modulefiles/ampere and derives PREFIX from its own path, so the tree can
# be moved.
set prefix [file dirname [file dirname [file dirname [file dirname $ModulesCurrentModulefile]]]]

module-whatis "ampere: joules per rank, call path and GPU kernel of MPI programs, while they run"
proc ModulesHelp { } {
    puts stderr "ampere run -- mpirun -n 4 ./program     measures a program"
    puts stderr "ampere doctor                           checks what this node has"
    puts stderr "SCOREP_SUBSTRATE_PLUGINS=ampere         does the same in a program that was built with Score-P"
}

prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
# Score-P finds the plugin there.
prepend-path LD_LIBRARY_PATH $prefix/lib/ampere-plugin
