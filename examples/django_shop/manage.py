"""A shop with Django: an order and its message are one transaction, and a consumer sends the mail.

pip install 'firearrow[django]'
export NAMESRV_ADDR=127.0.0.1:9876
python manage.py migrate --run-syncdb
python manage.py consume &
python manage.py runserver
curl -X POST http://127.0.0.1:8000/orders/book
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project")
    execute_from_command_line(sys.argv)
