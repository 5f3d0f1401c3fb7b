"""Write the generated documentation: `python -m surgery.docsgen FOLDER`."""

from surgery.docsgen.reference import main

main()
