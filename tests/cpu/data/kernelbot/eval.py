raise RuntimeError("the judge must never import a task's eval.py")
